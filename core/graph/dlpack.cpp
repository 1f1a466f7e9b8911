#include "core/graph/dlpack.h"

#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"

// The structures of DLPack, whose layout is part of its interface.
extern "C" {
struct DLDevice {
  int32_t device_type, device_id;
};
struct DLDataType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};
}

namespace troupe {

namespace {

constexpr int32_t kCpu = 1;

struct Code {
  DType dtype;
  uint8_t code, bits;
};
constexpr Code kCodes[] = {{DType::float32, 2, 32},  {DType::float64, 2, 64}, {DType::float16, 2, 16},
                           {DType::bfloat16, 4, 16}, {DType::int64, 0, 64},   {DType::int32, 0, 32},
                           {DType::uint8, 1, 8},     {DType::boolean, 6, 8}};

DLDataType type_of(DType dtype) {
  for (const Code& c : kCodes)
    if (c.dtype == dtype) return {c.code, c.bits, 1};
  throw_invalid("[dlpack] " + std::string(name(dtype)) + " has no type there");
}

// What a consumer holds: the tensor, and the numbers that its structure points to.
struct Given {
  DLManagedTensor managed{};
  Tensor tensor;
  std::vector<int64_t> shape, strides;
};

std::string type_name(const DLDataType& t) {
  return "type code " + std::to_string(t.code) + " of " + std::to_string(t.bits) + " bits and " +
         std::to_string(t.lanes) + " lanes";
}

// Bytes from the first element to behind the last one.
size_t extent(const Shape& shape, const Shape& strides, size_t item) {
  if (!shape.numel()) return 0;
  int64_t last = 0;
  for (int i = 0; i < shape.rank(); ++i) last += (shape[i] - 1) * strides[i];
  return (static_cast<size_t>(last) + 1) * item;
}

Tensor taken(DLManagedTensor* managed, const std::shared_ptr<void>& owner) {
  const DLTensor& d = managed->dl_tensor;
  const Code* found = nullptr;
  for (const Code& c : kCodes)
    if (c.code == d.dtype.code && c.bits == d.dtype.bits && d.dtype.lanes == 1) found = &c;
  if (!found) throw_invalid("[dlpack] " + type_name(d.dtype) + " is no element type here");
  if (d.device.device_type != kCpu)
    throw_invalid("[dlpack] the elements are on device type " + std::to_string(d.device.device_type) +
                  ", expected the CPU's memory: copy them there first");
  if (d.ndim < 0 || d.ndim > kMaxDims)
    throw_invalid("[dlpack] " + std::to_string(d.ndim) + " dimensions: expected at most " +
                  std::to_string(kMaxDims));
  Shape shape(std::vector<int64_t>(d.shape, d.shape + d.ndim)), strides = shape.contiguous_strides();
  if (d.strides) strides = Shape(std::vector<int64_t>(d.strides, d.strides + d.ndim));
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] < 0 || strides[i] < 0)
      throw_invalid("[dlpack] a size or a stride is below 0: make the tensor contiguous first");
  auto* first = static_cast<std::byte*>(d.data) + d.byte_offset;
  auto storage = Storage::wrap(first, extent(shape, strides, item_size(found->dtype)), owner);
  return Tensor(make_ref<TensorImpl>(std::move(storage), shape, strides, 0, found->dtype,
                                     strides == shape.contiguous_strides()));
}

}  // namespace

DLManagedTensor* to_dlpack(const Tensor& t) {
  if (!t.defined()) throw_invalid("[dlpack] the tensor is undefined");
  if (t.device() != cpu)
    throw_invalid("[dlpack] the tensor is on " + t.device().str() + ": copy it to the CPU first");
  auto given = std::make_unique<Given>();
  t.storage()->expose();
  given->tensor = t.detach();
  for (int64_t i = 0; i < t.dim(); ++i)
    given->shape.push_back(t.size(i)), given->strides.push_back(t.stride(i));
  DLTensor& d = given->managed.dl_tensor;
  d = {given->tensor.numel() ? given->tensor.bytes() : nullptr,
       {kCpu, 0},
       static_cast<int32_t>(t.dim()),
       type_of(t.dtype()),
       given->shape.data(),
       given->strides.data(),
       0};
  given->managed.manager_ctx = given.get();
  given->managed.deleter = [](DLManagedTensor* self) { delete static_cast<Given*>(self->manager_ctx); };
  return &given.release()->managed;
}

Tensor from_dlpack(DLManagedTensor* managed) {
  if (!managed) throw_invalid("[dlpack] a null pointer is no tensor");
  const std::shared_ptr<void> owner(managed, [](void* m) {
    auto* tensor = static_cast<DLManagedTensor*>(m);
    if (tensor->deleter) tensor->deleter(tensor);
  });
  return taken(managed, owner);
}

}  // namespace troupe
