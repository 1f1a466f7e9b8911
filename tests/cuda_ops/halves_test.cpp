// Kernels that take halves as they are, at sizes that their ways of reading rows differ in: beside float64 on
// the CPU.
#include <bit>
#include <catch2/catch.hpp>
#include <functional>

#include "autograd/engine.h"
#include "core/tensor/elements.h"
#include "ops/ops.h"
#include "optim/optimizer.h"
#include "optim/optimizer_catalog.h"
#include "tests/cuda/gpus.h"
#include "tests/support/near.h"
#include "tests/support/sim_cuda/sim.h"

using namespace troupe;

namespace {

using testing::difference, testing::gpu0, testing::needs_gpus;

Tensor drawn(const Shape& shape, uint64_t seed, DType dtype) {
  Generator g(seed);
  return ops::to(ops::randn(shape, g, float32), dtype);
}

using Function = std::function<Tensor(const Tensors&)>;

Tensors passes(const Tensors& inputs, const Tensor& slope, DType dtype, Device device, const Function& f) {
  Tensors leaves;
  for (const Tensor& t : inputs) leaves.push_back(ops::to(t, dtype).data_on(device).requires_grad_());
  const Tensor y = f(leaves);
  const Tensor g = slope.defined() ? ops::to(slope, dtype).data_on(device) : Tensor();
  Tensors all = autograd::grad({y}, leaves, g.defined() ? Tensors{g} : Tensors{});
  all.push_back(y.detach());
  return all;
}

// Results are float64's, rounded once; sums of float32 in another order.
void compare(const Tensors& given, const Tensor& slope, DType t, const Function& f, double more = 0,
             double least = 0) {
  Tensors inputs;
  for (const Tensor& x : given) inputs.push_back(ops::to(x, t));
  const Tensors got = passes(inputs, slope, t, gpu0, f), wanted = passes(inputs, slope, float64, cpu, f);
  const double rounding = t == bfloat16 ? 0x1p-8 : t == float16 ? 0x1p-11 : 0;
  for (size_t i = 0; i < got.size(); ++i) {
    INFO(name(t) << ", tensor " << i << ", " << wanted[i].summary());
    CHECK(got[i].dtype() == t);
    CHECK(difference(ops::to(got[i].data_on(cpu), float64), wanted[i], 1.02 * rounding + 2e-5 + more,
                     2e-5 + least + (t == float16 ? 0x1p-24 : 0)) == "");
  }
}

TEST_CASE("norms of rows that fit registers, and of others, in all dtypes") {
  if (!needs_gpus(1)) return;
  for (const auto& [rows, n] : {std::pair(5, 8),
                                {70, 37},
                                {9, 128},
                                {33, 256},
                                {6, 768},
                                {130, 768},
                                {3, 1000},
                                {5, 4096},
                                {3, 4104}})
    for (const DType t : {bfloat16, float16, float32}) {
      INFO(rows << " rows of " << n);
      const Tensor x = ops::add(drawn({rows, n}, 1, t), 3), g = drawn({rows, n}, 2, t);
      const Tensor weight = drawn({n}, 3, t), bias = drawn({n}, 4, t);
      compare({x, weight, bias}, g, t,
              [&](const Tensors& v) { return ops::layer_norm(v[0], {n}, v[1], v[2]); });
      compare({x, weight}, g, t, [&](const Tensors& v) { return ops::rms_norm(v[0], {n}, v[1], 1e-5); });
    }
}

TEST_CASE("softmax of rows that fit registers, and of other lines, in all dtypes") {
  if (!needs_gpus(1)) return;
  for (const auto& [rows, n] :
       {std::pair(1, 1), {5, 8}, {70, 37}, {33, 256}, {6, 768}, {3, 1000}, {5, 4096}, {3, 4104}})
    for (const DType t : {bfloat16, float16, float32})
      for (const int64_t dim : {0, 1}) {
        INFO(rows << " rows of " << n << ", dim " << dim);
        const Tensor x = ops::mul(drawn({rows, n}, 1, t), 3), g = drawn({rows, n}, 2, t);
        // Gradients are made of the rounded result: a unit of it more, of what is summed.
        const double rounding = t == bfloat16 ? 0x1p-8 : t == float16 ? 0x1p-11 : 0;
        compare(
            {x}, g, t, [&](const Tensors& v) { return ops::softmax(v[0], dim); }, 2 * rounding, 2 * rounding);
        compare(
            {x}, g, t, [&](const Tensors& v) { return ops::log_softmax(v[0], dim); }, 8 * rounding,
            8 * rounding);
      }
  for (const float odd : {INFINITY, -INFINITY, NAN}) {
    Tensor x = drawn({2, 64}, 3, float32);
    x.data<float>()[9] = odd;
    for (const DType t : {bfloat16, float32}) {
      const Tensor got = ops::softmax(ops::to(x, t).data_on(gpu0), 1).data_on(cpu);
      CHECK(difference(ops::to(got, float64), ops::softmax(ops::to(ops::to(x, t), float64), 1), 0x1p-7,
                       1e-4) == "");
    }
  }
}

// x * x has the gradient of x so far: `added` elements before its own place.
TEST_CASE("a norm adds its gradient to what has come for its input, with the bits of an addition, on a GPU") {
  if (!needs_gpus(1)) return;
  for (const auto& [rows, n] : {std::pair(600, 8), {140, 37}, {20, 768}, {2, 4104}})
    for (const DType t : {bfloat16, float16, float32, float64})
      for (const int64_t from : {0, 1}) {
        INFO(rows << " rows of " << n << ", " << name(t) << ", gradient from " << from);
        const Tensor x = drawn({rows, n}, 1, t).data_on(gpu0), g = drawn({rows, n}, 2, t).data_on(gpu0),
                     w = drawn({n}, 3, t).data_on(gpu0);
        const Tensor all = drawn({rows * n + from}, 4, t).data_on(gpu0);
        const Tensor came = ops::reshape(ops::slice(all, 0, from, from + rows * n), {rows, n});
        for (const Op* op : {&ops::kLayerNormGrad, &ops::kRmsNormGrad}) {
          const Tensor alone[] = {g, x, w}, joined[] = {g, x, w, came};
          const Tensors own = ops::apply(*op, alone), got = ops::apply(*op, joined);
          CHECK(bit_equal(got[0].data_on(cpu), ops::add(came, own[0]).data_on(cpu)));
          for (size_t i = 1; i < own.size(); ++i) CHECK(bit_equal(got[i].data_on(cpu), own[i].data_on(cpu)));
        }
      }
}

TEST_CASE("sums and means of halves are summed in double and rounded once") {
  if (!needs_gpus(1)) return;
  for (const DType t : {bfloat16, float16})
    for (const Shape& shape : {Shape{3, 5}, {8, 1030}, {5, 70, 3}, {70000}, {20000, 2}, {0, 4}})
      for (const IntList& dim : {IntList{}, {0}, {-1}}) {
        INFO(name(t) << ", " << shape.str() << ", " << dim.size() << " dimensions");
        const Tensor x = drawn(shape, 1, t), there = x.data_on(gpu0);
        CHECK(bit_equal(ops::sum(there, dim).data_on(cpu), ops::sum(x, dim)));
        if (x.numel()) CHECK(bit_equal(ops::mean(there, dim).data_on(cpu), ops::mean(x, dim)));
        if (x.numel()) compare({x}, {}, t, [](const Tensors& v) { return ops::mean(v[0]); });
      }
}

TEST_CASE("activations and dropout of halves are rounded once on a GPU, and so are their gradients") {
  if (!needs_gpus(1)) return;
  struct Case {
    const char* name;
    std::function<Tensor(const Tensor&)> f;
    double more = 0;  // units: gradients are made of the rounded result
  };
  const Case cases[] = {
      {"neg", [](const Tensor& x) { return ops::neg(x); }},
      {"abs", [](const Tensor& x) { return ops::abs(x); }},
      {"exp", [](const Tensor& x) { return ops::exp(x); }, 2},
      {"log", [](const Tensor& x) { return ops::log(ops::abs(x)); }, 1},
      {"relu", [](const Tensor& x) { return ops::relu(x); }},
      {"leaky_relu", [](const Tensor& x) { return ops::leaky_relu(x, 0.3); }},
      {"tanh", [](const Tensor& x) { return ops::tanh(x); }, 4},
      {"sigmoid", [](const Tensor& x) { return ops::sigmoid(x); }, 2},
      {"silu", [](const Tensor& x) { return ops::silu(x); }},
      {"gelu", [](const Tensor& x) { return ops::gelu(x); }},
      {"square", [](const Tensor& x) { return ops::square(x); }},
      {"sqrt", [](const Tensor& x) { return ops::sqrt(ops::abs(x)); }, 1},
      {"rsqrt", [](const Tensor& x) { return ops::rsqrt(ops::abs(x)); }, 3},
      {"reciprocal", [](const Tensor& x) { return ops::reciprocal(ops::clamp(x, 0.25, 4)); }, 2},
      {"log1p", [](const Tensor& x) { return ops::log1p(ops::abs(x)); }},
      {"expm1", [](const Tensor& x) { return ops::expm1(x); }, 8},
      {"log2", [](const Tensor& x) { return ops::log2(ops::abs(x)); }},
      {"sin", [](const Tensor& x) { return ops::sin(x); }},
      {"cos", [](const Tensor& x) { return ops::cos(x); }},
      {"erf", [](const Tensor& x) { return ops::erf(x); }},
      {"softplus", [](const Tensor& x) { return ops::softplus(x); }},
      {"elu", [](const Tensor& x) { return ops::elu(x, 0.7); }},
      {"clamp", [](const Tensor& x) { return ops::clamp(x, -0.5, 0.75); }},
      {"floor", [](const Tensor& x) { return ops::floor(x); }},
      {"gelu tanh", [](const Tensor& x) { return ops::gelu(x, "tanh"); }},
      {"dropout", [](const Tensor& x) { return (manual_seed(7), ops::dropout(x, 0.3)); }}};
  for (const DType t : {bfloat16, float16})
    for (const auto& [name, f, more] : cases)
      for (const bool turned : {false, true}) {
        INFO(name << ", turned " << turned);
        const double rounding = t == bfloat16 ? 0x1p-8 : 0x1p-11;
        compare(
            {drawn({24, 37}, 1, t)}, turned ? drawn({37, 24}, 2, t) : drawn({24, 37}, 2, t), t,
            [&](const Tensors& v) { return f(turned ? ops::transpose(v[0], 0, 1) : v[0]); }, more * rounding,
            more * rounding);
      }
}

TEST_CASE("other reductions of halves are rounded once on a GPU, and so are their gradients") {
  if (!needs_gpus(1)) return;
  const std::pair<const char*, std::function<Tensor(const Tensor&, const IntList&)>> cases[] = {
      {"var", [](const Tensor& x, const IntList& d) { return ops::var(x, d); }},
      {"std", [](const Tensor& x, const IntList& d) { return ops::std(x, d, false); }},
      {"prod", [](const Tensor& x, const IntList& d) { return ops::prod(x, d); }},
      {"norm", [](const Tensor& x, const IntList&) { return ops::norm(x); }},
      {"logsumexp", [](const Tensor& x, const IntList& d) { return ops::logsumexp(x, d); }},
      {"amax", [](const Tensor& x, const IntList& d) { return ops::amax(x, d); }},
      {"amin", [](const Tensor& x, const IntList& d) { return ops::amin(x, d); }}};
  for (const DType t : {bfloat16, float16})
    for (const auto& [name, f] : cases)
      for (const Shape& shape : {Shape{6, 9}, {5, 7, 3}, {3, 70}})
        for (const IntList& dim : {IntList{0}, {-1}}) {
          INFO(name << " of " << shape.str() << " over " << dim[0]);
          const double rounding = t == bfloat16 ? 0x1p-8 : 0x1p-11;  // gradients are made of rounded results
          const Tensor x = drawn(shape, 1, t), y = f(x, dim);
          // The largest of a row is one element also where it is rounded.
          compare(
              {x}, drawn(y.shape(), 2, t), t, [&](const Tensors& v) { return f(v[0], dim); }, 3 * rounding,
              rounding / 4);
        }
}

TEST_CASE("pools of halves are rounded once on a GPU, and so are their gradients") {
  if (!needs_gpus(1)) return;
  for (const DType t : {bfloat16, float16}) {
    const Tensor x = drawn({2, 3, 9, 8}, 1, t), g = drawn({2, 3, 5, 4}, 2, t);
    compare({x}, g, t, [](const Tensors& v) { return ops::max_pool2d(v[0], 3, ops::Pair(2), 1); });
    compare({x}, g, t, [](const Tensors& v) { return ops::avg_pool2d(v[0], 3, ops::Pair(2), 1); });
  }
}

TEST_CASE("batch and group norm of halves are rounded once on a GPU, and so are their gradients") {
  if (!needs_gpus(1)) return;
  for (const DType t : {bfloat16, float16})
    for (const Shape& shape : {Shape{5, 4, 3, 7}, {40, 6}, {2, 4, 300}}) {
      INFO(shape.str());
      const int64_t channels = shape[1];
      const Tensor x = drawn(shape, 1, t), w = drawn({channels}, 2, t), b = drawn({channels}, 3, t),
                   mean = drawn({channels}, 4, t), var = ops::add(ops::square(drawn({channels}, 5, t)), 0.5);
      const Tensor g = drawn(shape, 6, t);
      compare(
          {x, w, b}, g, t, [](const Tensors& v) { return ops::batch_norm_train(v[0], v[1], v[2]).y; }, 0,
          1e-4);
      compare(
          {x, w, b, mean, var}, g, t,
          [](const Tensors& v) { return ops::batch_norm_eval(v[0], v[1], v[2], v[3], v[4]); }, 0, 1e-4);
      compare(
          {x, w, b}, g, t, [](const Tensors& v) { return ops::group_norm(v[0], 2, v[1], v[2]); }, 0, 1e-4);
    }
}

#ifdef TROUPE_CUDA_SIM
TEST_CASE("operators of halves make no float32 copies on a GPU") {
  if (!needs_gpus(1)) return;
  const NoGradGuard off;
  const Tensor x = drawn({4, 4, 8, 8}, 1, bfloat16).data_on(gpu0), w = drawn({4}, 2, bfloat16).data_on(gpu0);
  const std::pair<const char*, std::function<void()>> cases[] = {
      {"sqrt", [&] { ops::sqrt(x); }},
      {"square", [&] { ops::square(x); }},
      {"softplus", [&] { ops::softplus(x); }},
      {"elu", [&] { ops::elu(x, 1); }},
      {"clamp", [&] { ops::clamp(x, -1, 1); }},
      {"round", [&] { ops::round(x); }},
      {"var", [&] { ops::var(x, {1}); }},
      {"std", [&] { ops::std(x, {1}); }},
      {"prod", [&] { ops::prod(x, {1}); }},
      {"norm", [&] { ops::norm(x); }},
      {"amax", [&] { ops::amax(x, {1}); }},
      {"max_pool2d", [&] { ops::max_pool2d(x, 2); }},
      {"avg_pool2d", [&] { ops::avg_pool2d(x, 2); }}};
  for (const auto& [name, f] : cases) {
    INFO(name);
    sim_cuda::reset_counters();
    f();
    CHECK(sim_cuda::counters().launches == 1);
  }
  // These have launches of their own for numbers of channels and for the rounded result.
  sim_cuda::reset_counters();
  ops::logsumexp(x, {1});
  CHECK(sim_cuda::counters().launches == 2);
  sim_cuda::reset_counters();
  ops::batch_norm_train(x, w, w);
  CHECK(sim_cuda::counters().launches == 4);
}
#endif

// Every half there is.
TEST_CASE("GELU and its slope are right for their own size on a GPU, however far below zero") {
  if (!needs_gpus(1)) return;
  for (const DType t : {bfloat16, float16, float32}) {
    std::vector<double> numbers;
    if (t == float32) {
      for (double x = -12.5; x < 13; x += 1.0 / 512 + 1e-9) numbers.push_back(x);
    } else {
      for (uint32_t bits = 0; bits < 0x10000; ++bits) {
        const auto half = static_cast<uint16_t>(bits);
        const double x = t == bfloat16 ? static_cast<float>(std::bit_cast<BFloat16>(half))
                                       : static_cast<float>(std::bit_cast<Float16>(half));
        if (std::isfinite(x) && std::abs(x) < 1e4) numbers.push_back(x);
      }
    }
    const Tensor x = ops::to(tensor(numbers, float64), t), g = ones_like(x);
    const double rounding = t == bfloat16 ? 0x1p-8 : t == float16 ? 0x1p-11 : 0;
    const Tensors got = passes({x}, g, t, gpu0, [](const Tensors&v) { return ops::gelu(v[0]); }),
                  wanted = passes({x}, g, float64, cpu, [](const Tensors&v) { return ops::gelu(v[0]); });
    INFO(name(t));
    const double least = t == float16 ? 0x1p-25 : 2e-38;
    CHECK(difference(ops::to(got[1].data_on(cpu), float64), wanted[1], rounding + 2e-5, least) == "");
    CHECK(difference(ops::to(got[0].data_on(cpu), float64), wanted[0], rounding + 1e-5, 1e-5) == "");
  }
}

TEST_CASE("what follows a product reads its neighbours at once, or one by one") {
  if (!needs_gpus(1)) return;
  for (const auto& [rows, n] : {std::pair(20, 64), {20, 37}, {3, 8}})
    for (const DType t : {bfloat16, float16, float32, float64}) {
      INFO(rows << " rows of " << n);
      const double rounding = t == bfloat16 ? 0x1p-8 : t == float16 ? 0x1p-11 : 0;
      const Tensor x = drawn({rows, 24}, 1, t), w = ops::mul(drawn({n, 24}, 2, t), 0.2), b = drawn({n}, 3, t),
                   r = drawn({rows, n}, 4, t), g = drawn({rows, n}, 5, t);
      const auto near = [&](const Tensors& inputs, const Function& f) {
        compare(inputs, g, t, f, 3 * rounding, 16 * rounding);  // sums of 20 rounded terms
      };
      near({x, w, b}, [](const Tensors& v) { return ops::linear_gelu(v[0], v[1], v[2]); });
      near({x, w}, [](const Tensors& v) { return ops::linear_gelu(v[0], v[1]); });
      near({x, w, b}, [](const Tensors& v) { return ops::linear_relu(v[0], v[1], v[2]); });
      near({x, w, b, r}, [](const Tensors& v) { return ops::linear_add(v[0], v[1], v[2], v[3]); });
    }
}

TEST_CASE("a norm reads rows from any place of a storage") {
  if (!needs_gpus(1)) return;
  const Tensor all = drawn({4 * 64 + 8}, 1, bfloat16), weight = drawn({64}, 2, bfloat16);
  for (const int64_t from : {0, 1, 4, 8}) {
    const auto norm = [&](const Tensor& x, const Tensor& w) {
      return ops::layer_norm(ops::reshape(ops::slice(x, 0, from, from + 256), {4, 64}), {64}, w, w);
    };
    const Tensor got = norm(all.data_on(gpu0), weight.data_on(gpu0)).data_on(cpu);
    CHECK(difference(got.to(float64), norm(all.to(float64), weight.to(float64)), 1.02 * 0x1p-8, 2e-5) == "");
  }
}

TEST_CASE("cross-entropy of long rows, of rows from any place, with all its options, in all dtypes") {
  if (!needs_gpus(1)) return;
  for (const auto& [rows, n] : {std::pair(1, 1), {4, 7}, {5, 64}, {3, 1023}, {2, 5000}})
    for (const DType t : {bfloat16, float16, float32, float64})
      for (const char* reduction : {"mean", "sum", "none"})
        for (const double smoothing : {0.0, 0.1}) {
          INFO(rows << " rows of " << n << ", " << reduction << ", smoothing " << smoothing);
          std::vector<int64_t> classes;
          for (int64_t r = 0; r < rows; ++r) classes.push_back(r == 1 ? -100 : (r * 31 + 5) % n);
          const Tensor target = tensor(classes), x = ops::mul(drawn({rows, n}, 1, t), 3);
          const bool each = std::string_view(reduction) == "none";
          compare({x}, each ? drawn({rows}, 2, t) : Tensor(), t, [&](const Tensors& v) {
            return ops::cross_entropy(v[0], target.data_on(v[0].device()), reduction, -100, smoothing);
          });
        }
}

TEST_CASE("cross-entropy of scores of images, of infinite ones and of NaN") {
  if (!needs_gpus(1)) return;
  const Tensor target = tensor({{0, 2, 1}, {1, 1, 0}});
  const auto loss = [&](const Tensors& v) {
    return ops::cross_entropy(v[0], target.data_on(v[0].device()), "none");
  };
  compare({drawn({2, 3, 3}, 1, bfloat16)}, drawn({2, 3}, 2, bfloat16), bfloat16, loss);
  for (const float odd : {INFINITY, -INFINITY, NAN})
    for (const int64_t at : {0, 3, 9, 40}) {
      Tensor x = drawn({1, 50}, 3, float32);
      x.data<float>()[at] = odd;
      const auto one = [&](const Tensors& v) {
        return ops::cross_entropy(v[0], tensor({7}).data_on(v[0].device()));
      };
      INFO(odd << " at " << at);
      compare({x}, {}, bfloat16, one);
      compare({x}, {}, float32, one);
    }
}

TEST_CASE("sums and products of halves are rounded once on a GPU, and so are their gradients") {
  if (!needs_gpus(1)) return;
  for (const DType t : {bfloat16, float16})
    for (const auto& [a, b] :
         {std::pair(Shape{6, 40}, Shape{6, 40}), {{6, 40}, {40}}, {{6, 1}, {1, 40}}, {{3}, {}}}) {
      INFO(a.str() << " and " << b.str());
      const Tensor x = drawn(a, 1, t), y = drawn(b, 2, t), g = drawn(ops::add(x, y).shape(), 3, t);
      compare({x, y}, g, t, [](const Tensors& v) { return ops::mul(v[0], v[1]); });
      compare({x, y}, g, t, [](const Tensors& v) { return ops::add(v[0], v[1]); });
      compare({x, y}, g, t, [](const Tensors& v) { return ops::sub(v[0], v[1]); });
      compare(
          {x}, x, t, [](const Tensors& v) { return ops::mul(ops::add(v[0], 0.1), -1.7); }, 2 * 0x1p-8);
    }
}

TEST_CASE(
    "an embedding's gradient in halves is summed in float32 and rounded once, however often a row comes") {
  if (!needs_gpus(1)) return;
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 500; ++i) ids.push_back(i % 3 ? 4 : i % 7 == 0 ? 5 : i % 11);
  const Tensor index = tensor(ids);
  for (const DType t : {bfloat16, float16})
    compare({drawn({12, 5}, 1, t)}, drawn({500, 5}, 2, t), t,
            [&](const Tensors& v) { return ops::embedding(index.data_on(v[0].device()), v[0]); });
}

// Parameters, three steps by gradients of some dtype, and between them a write by somebody else.
std::vector<Tensor> trained(const std::string& kind, DType dtype, DType of_gradients, Device device,
                            uint64_t* launches) {
  std::vector<Tensor> parameters;
  for (int64_t i = 0; i < 5; ++i)
    parameters.push_back(
        drawn({3 + 61 * i}, 1 + static_cast<uint64_t>(i), dtype).data_on(device).requires_grad_());
  const auto optimizer = optim::make(kind, {}, parameters);
  for (uint64_t step = 0; step < 3; ++step) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Tensor& p = parameters[i];
      p.set_grad(drawn(p.shape(), 100 * step + i, of_gradients).data_on(device));
    }
    if (step == 1) {
      NoGradGuard off;
      ops::mul_(parameters[2], 2.0);
    }
#ifdef TROUPE_CUDA_SIM
    sim_cuda::reset_counters();
#endif
    optimizer->step();
#ifdef TROUPE_CUDA_SIM
    if (launches) *launches = sim_cuda::counters().launches;
#endif
  }
  for (const auto& [key, value] : optimizer->state())
    if (key.ends_with(".master")) parameters.push_back(value.data_on(cpu));
  return parameters;
}

TEST_CASE("every optimizer reads halves, takes over what others wrote and rounds, in its own launch") {
  if (!needs_gpus(1)) return;
  for (const Entry& entry : optim::optimizers())
    for (const auto& [dtype, of_gradients] :
         {std::pair(bfloat16, bfloat16), {float16, float16}, {bfloat16, float32}}) {
      const std::string kind(entry.name);
      if (kind == "muon") continue;  // it takes matrices alone
      INFO(kind << " " << name(dtype) << ", gradients " << name(of_gradients));
      uint64_t launches = 0;
      const auto got = trained(kind, dtype, of_gradients, gpu0, &launches);
      const auto wanted = trained(kind, dtype, of_gradients, cpu, nullptr);
      REQUIRE(got.size() == 10);
      REQUIRE(wanted.size() == 10);
      for (size_t i = 5; i < 10; ++i) CHECK(difference(got[i], wanted[i], 1e-5, 1e-6) == "");
      for (size_t i = 0; i < 5; ++i)
        CHECK(bit_equal(got[i].data_on(cpu).detach(), ops::to(got[5 + i], dtype)));
#ifdef TROUPE_CUDA_SIM
      const bool of_operators = kind == "adafactor";
      CHECK((kind == "lamb" || of_operators || launches <= 2));
#endif
    }
}

}  // namespace
