// Tensors to and from other libraries, without a copy.
#include "core/graph/dlpack.h"

#include <catch2/catch.hpp>

#include <cstring>

#include "core/graph/copy_on_write.h"
#include "core/tensor/creation.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"

using namespace troupe;
using testing::error_of;

extern "C" {  // as another library sees it
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

namespace {

int deleted = 0;

// Another library's: rows of four numbers, of which a tensor of [2, 3] has the first three, from element 1
// on.
struct Foreign {
  float data[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  int64_t shape[2] = {2, 3}, strides[2] = {4, 1};
  DLManagedTensor managed{
      {data, {1, 0}, 2, {2, 32, 1}, shape, strides, 4}, this, [](DLManagedTensor*) { ++deleted; }};
};

}  // namespace

TEST_CASE("another library's tensor is used where it lies, and given back when nobody has it") {
  Foreign foreign;
  deleted = 0;
  {
    Tensor t = from_dlpack(&foreign.managed);
    CHECK(t.shape() == Shape{2, 3});
    CHECK(t.to_vector<float>() == std::vector<float>{1, 2, 3, 5, 6, 7});
    foreign.data[1] = 10;  // the library writes, and so do we
    CHECK(t.select(0, 0).select(0, 0).item<float>() == 10);
    ops::mul_(t, 2.0);
    CHECK(foreign.data[1] == 20);
    CHECK(foreign.data[4] == 4);  // between the rows
    const Tensor row = t.select(0, 1);
    t = Tensor();
    CHECK(deleted == 0);
    CHECK(row.to_vector<float>() == std::vector<float>{10, 12, 14});
  }
  CHECK(deleted == 1);
}

TEST_CASE("tensors of every type go to another library and back") {
  for (const DType dtype : {float32, float64, float16, bfloat16, int64, int32, uint8, boolean}) {
    const Tensor t = ops::transpose(arange(6).to(dtype).reshape({2, 3}), 0, 1).clone_data();
    DLManagedTensor* given = to_dlpack(t);
    CHECK(given->dl_tensor.ndim == 2);
    CHECK(given->dl_tensor.shape[0] == 3);
    const Tensor back = from_dlpack(given);
    CHECK(back.dtype() == dtype);
    CHECK(back.bytes() == t.bytes());
    CHECK(ops::equal(back, t));
  }
  const Tensor nothing = from_dlpack(to_dlpack(empty({0, 3})));
  CHECK(nothing.shape() == Shape{0, 3});
}

TEST_CASE("a tensor that another library has keeps its elements for it, and its history here") {
  const Tensor t = tensor({1, 2, 3}, float32).requires_grad_();
  DLManagedTensor* given = to_dlpack(t);
  static_cast<float*>(given->dl_tensor.data)[0] = 5;
  CHECK(t.detach().to_vector<float>() == std::vector<float>{5, 2, 3});
  CHECK(t.requires_grad());
  given->deleter(given);
  CHECK(t.detach().to_vector<float>() == std::vector<float>{5, 2, 3});
}

TEST_CASE("what cannot be taken over is refused, and given back") {
  const auto refused = [](const std::function<void(Foreign&)>& change, const std::string& text) {
    Foreign foreign;
    change(foreign);
    deleted = 0;
    CHECK_THAT(error_of([&] { (void)from_dlpack(&foreign.managed); }).what(), Catch::Contains(text));
    CHECK(deleted == 1);
  };
  refused([](Foreign& f) { f.managed.dl_tensor.dtype.code = 5; }, "type code 5 of 32 bits and 1 lanes");
  refused([](Foreign& f) { f.managed.dl_tensor.dtype.lanes = 4; }, "4 lanes");
  refused([](Foreign& f) { f.managed.dl_tensor.device.device_type = 2; },
          "device type 2, expected the CPU's memory");
  refused([](Foreign& f) { f.managed.dl_tensor.ndim = 9; }, "9 dimensions");
  refused([](Foreign& f) { f.strides[0] = -4; }, "below 0");
  CHECK_THAT(error_of([] { (void)from_dlpack(nullptr); }).what(), Catch::Contains("null pointer"));
  CHECK_THAT(error_of([] { (void)to_dlpack({}); }).what(), Catch::Contains("undefined"));
}

TEST_CASE("another library has the elements of a tensor that has views and a history") {
  const Tensor t = ones({200, 2}).requires_grad_(), row = t.detach().select(0, 1),
               expanded = row.expand({3, 2});
  const Tensor sent = internal::lazy_copy(t.detach()), loss = ops::sum(ops::mul(t, t));
  for (const Tensor& given : {row, expanded, t}) {
    const Tensor back = from_dlpack(to_dlpack(given));
    CHECK(ops::equal(back, given.detach()));
    CHECK(back.bytes() == given.bytes());
  }
  const Tensor later = internal::lazy_copy(t.detach());  // after it was looked at: at once
  DLManagedTensor* given = to_dlpack(row);
  static_cast<float*>(given->dl_tensor.data)[0] = 5;
  given->deleter(given);
  CHECK(t.detach().select(0, 1).to_vector<float>() == std::vector<float>{5, 1});
  for (const Tensor& other : {sent, later}) CHECK(ops::equal(other, ones({200, 2})));
  loss.backward();  // looking is no write: the pass goes on, with the elements as they are
  CHECK(t.grad().select(0, 1).to_vector<float>() == std::vector<float>{10, 2});
}
