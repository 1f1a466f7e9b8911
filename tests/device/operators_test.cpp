// Every operator on the null device: values, gradients and second gradients have the bits of the CPU.
#include <catch2/catch.hpp>

#include "autograd/engine.h"
#include "ops/dispatch/kernel_table.h"
#include "ops/ops.h"
#include "tests/support/built_for.h"
#include "tests/support/error_of.h"
#include "tests/support/null_device.h"
#include "tests/support/operator_passes.h"

using namespace troupe;

namespace {

using ops::Op;
using testing::null0, testing::null1, testing::Passes, testing::run_passes;

std::string compared(const Tensors& got, const Tensors& wanted) {
  if (got.size() != wanted.size()) return "another number of tensors";
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i].defined() && got[i].device() != null0) return got[i].str() + " is not on null:0";
    if (!bit_equal(got[i], wanted[i])) return "tensor " + std::to_string(i) + " differs";
  }
  return "";
}

template <class F>
void sweep(F seen) {
  testing::install_null_device();
  for (const Op* op : ops::all_ops()) {
    if (std::string_view(op->name) == "to_device") continue;  // tried below
    const auto samples = op->samples();
    for (size_t i = 0; i < samples.size(); ++i) {
      INFO(op->name << ", sample " << i);
      std::string failed;
      try {
        const Passes wanted = run_passes(*op, samples[i], Device(), seen),
                     got = run_passes(*op, samples[i], null0, seen);
        failed = compared(got.outputs, wanted.outputs);
        if (failed.empty()) failed = compared(got.grads, wanted.grads);
        if (failed.empty()) failed = compared(got.seconds, wanted.seconds);
      } catch (const Error& e) {
        failed = e.what();
      }
      CHECK(failed == "");
    }
  }
}

TEST_CASE("every operator gives on the null device the bits of the CPU, with both derivatives") {
  const size_t before = testing::null_bytes_in_use();
  sweep([](const Tensor& t) { return t; });
  CHECK(testing::null_bytes_in_use() == before);
}

TEST_CASE("so it does in bfloat16") {
  sweep([](const Tensor& t) { return is_floating(t.dtype()) ? ops::to(t, bfloat16) : t; });
}

TEST_CASE("a copy to another device is an operator with gradients, which go back") {
  testing::install_null_device();
  Tensor x = tensor({1, -2, 3}, float64).requires_grad_();
  const Tensor y = x.to("null:0"), z = y.to(null1, float32);
  CHECK(y.device() == null0);
  CHECK(z.summary() == "float32 [3] on null:1");
  CHECK(y.to(null0).is_same(y));
  const Tensor loss = ops::sum(ops::mul(ops::mul(y, y), y));
  const Tensors first = autograd::grad({loss}, {x}, {}, {.create_graph = true});
  CHECK(first[0].device() == cpu);
  CHECK(first[0].to_vector<double>() == std::vector<double>{3, 12, 27});
  const Tensors second = autograd::grad({ops::sum(first[0])}, {x});
  CHECK(second[0].to_vector<double>() == std::vector<double>{6, -12, 18});
  autograd::backward(ops::sum(x.to(null0).to(null1, float32)));
  CHECK(x.grad().to_vector<double>() == std::vector<double>{1, 1, 1});
  // Views of all strides, and dtypes on the way.
  const Tensor wide = ops::reshape(ops::rand({60}), {5, 12}), t = ops::transpose(wide, 0, 1);
  CHECK(bit_equal(t.to(null0).to(null1).to(cpu), t));
  const Tensor whole = zeros({12, 5}, {float64, null0});
  whole.copy_(t);
  CHECK(bit_equal(whole, t.to(float64)));
}

TEST_CASE("errors of devices name them") {
  testing::install_null_device();
  const Tensor here = tensor({1, 2}, float32), there = here.data_on(null0), other = here.data_on(null1);
  CHECK(testing::text_of([&] { ops::add(there, here); }) ==
        "[add] inputs are on different devices: null:0 and cpu");
  CHECK(testing::text_of([&] { ops::add(there, other); }) ==
        "[add] inputs are on different devices: null:0 and null:1");
  CHECK(testing::text_of([&] { there.data<float>(); }) ==
        "[tensor] float32 [2] on null:0 has no elements that the host can read: copy it with .to(cpu)");
  CHECK(testing::text_of([&] { there.bytes(); }) ==
        "[tensor] float32 [2] on null:0 has no elements that the host can read: copy it with .to(cpu)");
  CHECK(testing::text_of([] { Device("null:2"); }) ==
        "[device] there is no null:2: this machine has 2 devices of the kind null");
  CHECK(testing::text_of([] { Device("nul"); }) ==
        "[device] 'nul': this program was built for " + testing::built_for() + " only");
  for (const std::string wrong : {"null:", "null:-0", "null:+0", "null:00", "null:0 ", "null: 0", "null:0x0",
                                  "null:128", "null:-1", "null:99999999999"})
    CHECK(testing::text_of([&] { (void)Device(wrong); }) ==
          "[device] '" + wrong + "' names no device; write for example cpu or cuda:0");
  CHECK(testing::text_of([] { (void)Device(std::string("null:0\0", 7)); }) ==
        "[device] 'null:0?' names no device; write for example cpu or cuda:0");
  CHECK(testing::text_of([] {
          zeros({1}, {float32, Device(Device::Kind{6})});
        }) == "[device] no backend for device kind 6:0: this program was built for " + testing::built_for() +
                  " only");
  const Op unknown{.name = "unheard_of", .shape = [](const ops::Call&) -> ops::Specs { return {}; }};
  CHECK(testing::text_of([&] {
          ops::apply(unknown, {&there, 1});
        }) == "[unheard_of] no kernel for device null:0");
  CHECK(there.summary() == "float32 [2] on null:0");
  CHECK(there.to_vector<float>() == std::vector<float>{1, 2});
  CHECK(ops::sum(there).item() == 3);
  CHECK(bit_equal(there, here));
  CHECK(bit_equal(other.data_on(null0), here));
}

}  // namespace
