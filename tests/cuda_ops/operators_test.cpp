// Every operator on a GPU: values, gradients and second gradients are those of the CPU, but for the order of
// sums.
#include <catch2/catch.hpp>
#include <set>

#include "autograd/engine.h"
#include "core/cuda/install.h"
#include "ops/dispatch/kernel_table.h"
#include "ops/ops.h"
#include "tests/cuda/gpus.h"
#include "tests/support/error_of.h"
#include "tests/support/operator_passes.h"
#include "tests/support/sim_cuda/sim.h"

using namespace troupe;

namespace {

using ops::Op, ops::Sample;
using testing::needs_gpus, testing::Passes;

using testing::gpu0, testing::gpu1;

Passes run(const Op& op, const Sample& s, DType floating, Device device) {
  return testing::run_passes(
      op, s, device, [&](const Tensor& t) { return is_floating(t.dtype()) ? ops::to(t, floating) : t; });
}

// Of the largest element: what sums in another order may differ by.
double tolerance(DType dtype) { return dtype == float64 ? 1e-12 : dtype == float32 ? 2e-5 : 2e-2; }

std::string compared(const Tensors& got, const Tensors& wanted) {
  if (got.size() != wanted.size()) return "another number of tensors";
  for (size_t i = 0; i < got.size(); ++i) {
    const std::string which = "tensor " + std::to_string(i) + ": ";
    if (got[i].defined() != wanted[i].defined()) return which + "one is undefined";
    if (!got[i].defined()) continue;
    if (got[i].device() != gpu0) return which + got[i].summary() + " is not on cuda:0";
    if (got[i].shape() != wanted[i].shape() || got[i].dtype() != wanted[i].dtype())
      return which + got[i].summary() + ", expected " + wanted[i].summary();
    if (!is_floating(got[i].dtype())) {
      if (!bit_equal(got[i], wanted[i])) return which + got[i].summary() + " differs";
      continue;
    }
    const auto a = got[i].to_vector<double>(), b = wanted[i].to_vector<double>();
    double largest = 1;
    for (const double x : b)
      if (std::isfinite(x)) largest = std::max(largest, std::fabs(x));
    for (size_t k = 0; k < a.size(); ++k) {
      if (a[k] == b[k] || (std::isnan(a[k]) && std::isnan(b[k]))) continue;
      if (!(std::fabs(a[k] - b[k]) <= tolerance(got[i].dtype()) * largest))
        return which + "element " + std::to_string(k) + " of " + got[i].summary() + " is " +
               std::to_string(a[k]) + ", expected " + std::to_string(b[k]);
    }
  }
  return "";
}

void sweep(DType floating) {
  if (!needs_gpus(1)) return;
  const size_t before = allocator_stats(gpu0).in_use;
  for (const Op* op : ops::all_ops()) {
    if (std::string_view(op->name) == "to_device") continue;  // tried below
    const auto samples = op->samples();
    for (size_t i = 0; i < samples.size(); ++i) {
      INFO(op->name << ", sample " << i);
      std::string failed, refused;
      Passes wanted;
      try {
        wanted = run(*op, samples[i], floating, cpu);
      } catch (const Error& e) {
        refused = e.message();
      }
      try {
        const Passes got = run(*op, samples[i], floating, gpu0);
        failed = compared(got.outputs, wanted.outputs);
        if (failed.empty()) failed = compared(got.grads, wanted.grads);
        if (failed.empty()) failed = compared(got.seconds, wanted.seconds);
      } catch (const Error& e) {
        if (refused.empty() || e.message() != refused) failed = e.what();
      }
      CHECK(failed == "");
    }
  }
  CHECK(allocator_stats(gpu0).in_use == before);
}

TEST_CASE("every operator gives on a GPU what it gives on the CPU, with both derivatives") { sweep(float64); }
TEST_CASE("so it does in float32") { sweep(float32); }
TEST_CASE("so it does in bfloat16") { sweep(bfloat16); }
TEST_CASE("so it does in float16") { sweep(float16); }

TEST_CASE("every operator has a kernel on GPUs") {
  std::string missing;
  for (const ops::KernelTable table : ops::cpu_kernels())
    for (const ops::KernelEntry& e : table) {
      const Op* op = nullptr;
      for (const Op* known : ops::all_ops())
        if (std::string_view(known->name) == e.op) op = known;
      if (op && !ops::has_kernel(*op, gpu0)) missing += std::string(" ") + e.op;
    }
  CHECK(missing == "");
}

TEST_CASE("copies between the host and GPUs are operators with gradients, which go back") {
  if (!needs_gpus(2)) return;
  Tensor x = tensor({1, -2, 3}, float64).requires_grad_();
  const Tensor y = x.to("cuda:0"), z = y.to(gpu1, float32);
  CHECK(z.summary() == "float32 [3] on cuda:1");
  const Tensor loss = ops::sum(ops::mul(ops::mul(y, y), y));
  const Tensors first = autograd::grad({loss}, {x}, {}, {.create_graph = true});
  CHECK(first[0].device() == cpu);
  CHECK(first[0].to_vector<double>() == std::vector<double>{3, 12, 27});
  const Tensors second = autograd::grad({ops::sum(first[0])}, {x});
  CHECK(second[0].to_vector<double>() == std::vector<double>{6, -12, 18});
  autograd::backward(ops::sum(x.to(gpu0).to(gpu1, float32)));
  CHECK(x.grad().to_vector<double>() == std::vector<double>{1, 1, 1});
  CHECK(testing::text_of([&] { ops::add(y, x); }) == "[add] inputs are on different devices: cuda:0 and cpu");
}

#ifdef TROUPE_CUDA_SIM
TEST_CASE("an index that is out of range stops the device") {
  const Tensor x = zeros({4, 2}, {float32, gpu0}), index = tensor({1, 4}).data_on(gpu0);
  CHECK_THAT(testing::text_of([&] { ops::index_select(x, 0, index).data_on(cpu); }),
             Catch::Contains("trapped"));
  CHECK_THAT(testing::text_of([&] { ops::sum(x); }),
             Catch::Contains("[sum] ") && Catch::Contains("on cuda:0: cudaErrorIllegalAddress") &&
                 Catch::EndsWith("(inputs: float32 [4, 2] on cuda:0)"));
  CHECK_THAT(sim_cuda::take_fault(), Catch::Contains("trapped"));
  CHECK(ops::sum(x).item() == 0);
}
#endif

}  // namespace
