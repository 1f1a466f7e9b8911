// Elements that Python's other libraries have, and those that they get: DLPack, NumPy, buffers; no copies.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <vector>

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/graph/dlpack.h"
#include "python/conversion.h"

extern "C" {  // as DLPack has it
struct DLManagedTensor {
  troupe::python::nb::dlpack::dltensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};
}

namespace troupe::python {
namespace {

using Array = nb::ndarray<nb::device::cpu>;
using ArrayToRead = nb::ndarray<nb::ro, nb::device::cpu>;

// The arrays that the last tensor let go of on a thread without the interpreter's lock. None of Troupe's
// threads ever waits for that lock, so these wait for the interpreter's main thread.
class Dropped {
 public:
  void drop(Array* array) {
    if (!Py_IsInitialized()) return;  // the process ends, and they with it
    if (PyGILState_Check()) {
      delete array;
      return;
    }
    const internal::Lock lock(mutex_);
    arrays_.push_back(array);
    if (!asked_) asked_ = Py_AddPendingCall(&clear_all, this) == 0;
  }
  void clear() {
    std::vector<Array*> arrays;
    {
      const internal::Lock lock(mutex_);
      arrays.swap(arrays_);
      asked_ = false;
    }
    for (Array* array : arrays) delete array;
  }

 private:
  static int clear_all(void* self) {
    static_cast<Dropped*>(self)->clear();
    return 0;
  }
  internal::Mutex mutex_;
  std::vector<Array*> arrays_ TROUPE_GUARDED_BY(mutex_);
  bool asked_ TROUPE_GUARDED_BY(mutex_) = false;
};

Dropped& dropped() {
  static Dropped all;
  return all;
}

// What keeps an array while a tensor has its elements, in the words of DLPack.
struct Taken {
  DLManagedTensor managed{};
  std::vector<int64_t> shape, strides;
  Array* array = nullptr;
};

Tensor taken(Array array) {
  auto held = std::make_unique<Taken>();
  for (size_t i = 0; i < array.ndim(); ++i) {
    held->shape.push_back(static_cast<int64_t>(array.shape(i)));
    held->strides.push_back(array.stride(i));
  }
  held->managed.dl_tensor.data = array.data();
  held->managed.dl_tensor.device = {nb::device::cpu::value, 0};
  held->managed.dl_tensor.ndim = static_cast<int32_t>(array.ndim());
  held->managed.dl_tensor.dtype = array.dtype();
  held->managed.dl_tensor.shape = held->shape.data();
  held->managed.dl_tensor.strides = held->strides.data();
  held->array = new Array(std::move(array));
  held->managed.manager_ctx = held.get();
  held->managed.deleter = [](DLManagedTensor* self) {
    auto* mine = static_cast<Taken*>(self->manager_ctx);
    dropped().drop(mine->array);
    delete mine;
  };
  return from_dlpack(&held.release()->managed);
}

// What the object itself says of why it gives nothing, else that it has nothing to give.
[[noreturn]] void refuse(nb::handle object) {
  if (PyObject_HasAttrString(object.ptr(), "__dlpack__")) (void)object.attr("__dlpack__")();
  throw_invalid(std::string("[tensor] the elements of a ") + Py_TYPE(object.ptr())->tp_name +
                " are none of a tensor here: expected numbers in the CPU's memory");
}

}  // namespace

Tensor tensor_of_array(nb::handle object) {
  dropped().clear();
  if (Array array; nb::try_cast(object, array, false)) return taken(std::move(array));
  ArrayToRead read;
  if (!nb::try_cast(object, read, false)) refuse(object);
  return taken(Array(read)).clone_data();
}

nb::object array_of(const Tensor& tensor, bool numpy) {
  if (tensor.requires_grad())
    throw_invalid("[numpy] the tensor needs a gradient: x.detach().numpy() has its elements alone");
  DLManagedTensor* given = to_dlpack(tensor);
  nb::capsule owner(given, [](void* p) noexcept {
    auto* managed = static_cast<DLManagedTensor*>(p);
    managed->deleter(managed);
  });
  const nb::dlpack::dltensor& d = given->dl_tensor;
  const std::vector<size_t> shape(d.shape, d.shape + d.ndim);
  if (numpy)
    return nb::cast(nb::ndarray<nb::numpy>(d.data, shape.size(), shape.data(), owner, d.strides, d.dtype,
                                           nb::device::cpu::value));
  return nb::cast(nb::ndarray<nb::array_api>(d.data, shape.size(), shape.data(), owner, d.strides, d.dtype,
                                             nb::device::cpu::value));
}

}  // namespace troupe::python
