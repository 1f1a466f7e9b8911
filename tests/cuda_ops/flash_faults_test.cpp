// The tests of attention find what could be wrong with its kernels: each rule is left out once
// (flash_without.py).
#ifdef TROUPE_CUDA_SIM
#include <catch2/catch.hpp>
#include <cstdlib>

#include "core/base/error.h"
#include "core/tensor/elements.h"
#include "ops/attention.h"
#include "ops/cuda/flash.h"
#include "ops/ops.h"
#include "tests/cuda/gpus.h"
#include "tests/cuda_ops/flash_with_switches.h"
#include "tests/support/sim_cuda/matrix_unit.h"
#include "tests/support/sim_cuda/sim.h"

using namespace troupe;

namespace {

using testing::gpu0;

struct Sizes {
  int64_t queries, keys, width;
  bool causal;
};

struct Problem {
  Tensor q, k, v, g, g_logs;
  bool causal;
  explicit Problem(const Sizes& s) : causal(s.causal) {
    const auto drawn = [](const Shape& shape, uint64_t seed, DType t) {
      Generator random(seed);
      return ops::to(ops::randn(shape, random, float32), t).data_on(gpu0);
    };
    q = drawn({2, s.queries, s.width}, 1, bfloat16), k = drawn({2, s.keys, s.width}, 2, bfloat16);
    v = drawn({2, s.keys, s.width}, 3, bfloat16), g = drawn({2, s.queries, s.width}, 4, bfloat16);
    g_logs = drawn({2, s.queries}, 5, float32);
  }
};

// Result, logarithms and gradients.
template <class Forward, class Backward>
std::vector<std::vector<double>> passes(const Problem& p, Forward&& forward, Backward&& backward) {
  const ops::Attrs attrs{{"causal", p.causal}, {"scale", 0.0}};
  const Tensor in[] = {p.q, p.k, p.v};
  const ops::Call c{ops::kAttention, in, attrs};
  const auto like = [](const Tensor& t) { return empty(t.shape(), {t.dtype(), t.device()}); };
  const Tensor out = like(p.q), logs = like(p.g_logs), dq = like(p.q), dk = like(p.k), dv = like(p.v);
  forward(c, p.q, p.k, p.v, out, logs);
  backward(c, {p.g, p.g_logs, p.q, p.k, p.v, out, logs}, dq, dk, dv);
  std::vector<std::vector<double>> all;
  for (const Tensor& t : {out, logs, dq, dk, dv}) all.push_back(t.data_on(cpu).to_vector<double>());
  return all;
}

// "" if the kernels with switches give what the true ones do.
std::string found(const Problem& p, const std::vector<std::vector<double>>& wanted) {
  sim_cuda::reset_matrix_counts();
  try {
    const auto got = passes(p, testing::flash_forward, testing::flash_backward);
    for (size_t i = 0; i < got.size(); ++i)
      if (got[i] != wanted[i]) return "other bits";
  } catch (const Error& e) {
    sim_cuda::take_fault();
    return e.message();
  }
  return sim_cuda::matrix_counts().conflicts ? "conflicts" : "";
}

TEST_CASE("attention on the matrix unit: each rule that is left out is found") {
  if (!testing::needs_gpus(1) || std::getenv("TROUPE_SIM_SEED")) return;  // it has seeds of its own
  std::vector<std::pair<Problem, std::vector<std::vector<double>>>> all;
  for (const Sizes& s : {Sizes{200, 200, 64, true}, {70, 150, 40, false}}) {
    const Problem p(s);
    all.emplace_back(p, passes(p, ops::on_cuda::flash_forward, ops::on_cuda::flash_backward));
  }
  const auto tried = [&](uint64_t seeds) {
    for (uint64_t seed = 0; seed < seeds; ++seed)
      for (const auto& [problem, wanted] : all) {
        sim_cuda::schedule_by_seed(seed);
        if (const std::string what = found(problem, wanted); !what.empty()) return what;
      }
    return std::string();
  };
  CHECK(tried(3) == "");
  for (size_t rule = 0; rule < testing::kFlashRules.size(); ++rule) {
    INFO(testing::kFlashRules[rule]);
    testing::leave_out_of_flash(rule);
    CHECK(tried(40) != "");
  }
  testing::leave_out_of_flash(SIZE_MAX);
  CHECK(tried(1) == "");
  sim_cuda::schedule_eagerly();
}

}  // namespace
#endif
