// CPU kernels beyond the samples: sizes that fill blocks and vectors, special values, threads, updates in
// place.
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "core/base/error.h"
#include "ops/ops.h"
#include "tests/support/near.h"

using namespace troupe;

namespace {

using testing::difference;

Tensor random(const Shape& shape, DType dtype, uint64_t seed = 1) {
  Generator g(seed);
  return ops::randn(shape, g, dtype);
}

Tensor naive(const Tensor& a, const Tensor& b) {
  const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  const Tensor out = zeros({m, n}, float64);
  // By plain pointers: tests are compiled without optimization, and these loops are most of their time.
  for (int64_t i = 0; i < m; ++i)
    for (int64_t l = 0; l < k; ++l) {
      const double factor = x[static_cast<size_t>(i * k + l)];
      const double* from = y.data() + l * n;
      double* to = out.data<double>() + i * n;
      for (int64_t j = 0; j < n; ++j) to[j] += factor * from[j];
    }
  return out;
}

TEST_CASE("matmul of every size, layout and floating dtype equals the three loops") {
  const int64_t sizes[][3] = {{1, 1, 1},     {1, 7, 1},      {7, 1, 9},       {33, 65, 17},   {70, 300, 530},
                              {8, 16, 24},   {1, 40, 50},    {50, 40, 1},     {64, 512, 144}, {40, 515, 49},
                              {35, 3, 1001}, {83, 515, 219}, {531, 260, 193}, {9, 20, 4700}};
  for (const auto& [m, k, n] : sizes)
    for (const DType t : {float32, float64})
      for (const bool ta : {false, true})
        for (const bool tb : {false, true}) {
          INFO(m << " x " << k << " x " << n << " " << name(t) << (ta ? " a transposed" : "")
                 << (tb ? " b transposed" : ""));
          const Tensor a = ta ? random({k, m}, t).transpose(0, 1) : random({m, k}, t);
          const Tensor b = tb ? random({n, k}, t, 2).transpose(0, 1) : random({k, n}, t, 2);
          const double absolute = (t == float32 ? 2e-6 : 1e-14) * static_cast<double>(k);
          CHECK(difference(ops::matmul(a, b), naive(a, b), 0, absolute) == "");
        }
}

TEST_CASE("a matrix repeated by expand multiplies without its copies") {
  const Tensor a = random({1, 4}, float32).expand({3, 4}), b = random({4, 1}, float32, 2).expand({4, 5});
  CHECK(difference(ops::matmul(a, b), naive(a, b), 1e-6, 1e-6) == "");
}

TEST_CASE("products have the same bits on every thread and at every alignment") {
  const Tensor a = random({65, 130}, float32), b = random({130, 77}, float32, 2);
  const Tensor expected = ops::matmul(a, b);
  bool same[4] = {};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      const Tensor memory = empty({65 * 130 + 4});
      const Tensor shifted = memory.alias(a.shape(), a.strides(), i);
      shifted.copy_(a);
      same[i] = bit_equal(ops::matmul(shifted, b), expected);
    });
  for (auto& t : threads) t.join();
  for (const bool s : same) CHECK(s);
}

TEST_CASE("products have the same bits with any number of threads") {
  const int before = ops::num_threads();
  const int64_t shapes[][3] = {{64, 784, 128},  {16, 784, 128},  {1000, 200, 130}, {130, 200, 1000},
                               {300, 300, 300}, {100, 784, 600}, {260, 20, 4700}};
  for (const auto& [m, k, n] : shapes)
    for (const bool flip_a : {false, true})
      for (const bool flip_b : {false, true}) {
        const Tensor a = flip_a ? random({k, m}, float32).transpose(0, 1) : random({m, k}, float32);
        const Tensor b = flip_b ? random({n, k}, float32, 2).transpose(0, 1) : random({k, n}, float32, 2);
        ops::set_num_threads(1);
        const Tensor one = ops::matmul(a, b);
        INFO(m << " x " << k << " x " << n << ", transposed: " << flip_a << flip_b);
        CHECK(difference(one, naive(a, b), 0, 1e-3) == "");
        for (const int threads : {2, 5}) {
          ops::set_num_threads(threads);
          CHECK(bit_equal(ops::matmul(a, b), one));
        }
        ops::set_num_threads(before);
      }
}

TEST_CASE("the gradient of linear's bias comes with that of its weight, the same on two threads") {
  const int64_t sizes[][3] = {{5, 3, 4}, {130, 70, 50}, {515, 203, 219}, {1024, 256, 256}};  // rows, out, in
  for (const auto& [rows, high, wide] : sizes)
    for (const DType t : {float32, float64})
      for (const bool across : {false, true}) {
        INFO(rows << " rows, " << high << " x " << wide << " " << name(t) << (across ? " across" : ""));
        const Tensor x = random({rows, wide}, t, 2),
                     g = across ? random({high, rows}, t).transpose(0, 1) : random({rows, high}, t);
        const Tensor inputs[] = {g, x};
        const Tensors both = ops::apply(ops::kLinearWeightGrad, inputs);
        const double absolute = (t == float32 ? 2e-6 : 1e-14) * static_cast<double>(rows);
        CHECK(difference(both[0], naive(g.transpose(0, 1), x), 0, absolute) == "");
        CHECK(difference(both[1], ops::sum(ops::to(g, float64), {0}), 1e-6, 1e-5) == "");
        ops::set_num_threads(2);
        const Tensors again = ops::apply(ops::kLinearWeightGrad, inputs);
        ops::set_num_threads(1);
        CHECK(bit_equal(again[0], both[0]));
        CHECK(bit_equal(again[1], both[1]));
      }
}

TEST_CASE("linear_relu and linear_gelu have the bits of relu and gelu after linear, NaN included") {
  for (const DType t : {float32, float64})
    for (const auto& [rows, in, out] :
         {std::array<int64_t, 3>{5, 7, 3}, {70, 300, 100}, {2, 40, 64}, {4, 0, 3}, {600, 260, 330}}) {
      const Tensor x = random({rows, in}, t), w = random({out, in}, t, 2), bias = random({out}, t, 3);
      if (in > 0) x.alias({in}, {1}, in).fill_(std::numeric_limits<double>::quiet_NaN());  // row 1
      INFO(rows << " x " << in << " x " << out << " " << name(t));
      CHECK(bit_equal(ops::linear_relu(x, w, bias), ops::relu(ops::linear(x, w, bias))));
      CHECK(bit_equal(ops::linear_relu(x, w), ops::relu(ops::linear(x, w))));
      const Tensor before = ops::linear(x, w, bias), one = ones(before.shape(), t);
      const Tensor inputs[] = {x, w, bias};
      const Tensors both = ops::apply(ops::kLinearGelu, inputs);
      CHECK(difference(both[0], ops::gelu(before), 0, 0) == "");  // the sign of NaN may differ
      CHECK(difference(both[1], ops::apply1(ops::kGeluGrad, {one, before}), 0, 0) == "");
      CHECK(difference(ops::linear_gelu(x, w), ops::gelu(ops::linear(x, w)), 0, 0) == "");
      CHECK(bit_equal(ops::linear(x, w, bias), ops::add(ops::linear(x, w), bias)));
    }
}

TEST_CASE("linear_add has the bits of an addition after linear") {
  const int64_t sizes[][3] = {{3, 4, 5}, {70, 520, 131}, {300, 256, 256}};  // rows, in, out
  for (const auto& [rows, in, out] : sizes)
    for (const DType t : {float32, float64}) {
      INFO(rows << " x " << in << " x " << out << " " << name(t));
      const Tensor x = random({rows, in}, t), w = random({out, in}, t, 2), b = random({out}, t, 3),
                   r = random({rows, out}, t, 4), across = random({out, rows}, t, 5).transpose(0, 1);
      CHECK(bit_equal(ops::linear_add(x, w, b, r), ops::add(r, ops::linear(x, w, b))));
      CHECK(bit_equal(ops::linear_add(x, w, {}, across), ops::add(across, ops::linear(x, w))));
    }
}

TEST_CASE("results larger than the caches have the bits of their parts, on any number of threads") {
  constexpr int64_t kPart = 1 << 20, kMost = 9 * kPart + 77;  // 36 MiB and a bit
  const Tensor a = random({kMost}, float32), b = random({kMost}, float32, 2);
  const int before = ops::num_threads();
  for (const int threads : {1, 2}) {
    ops::set_num_threads(threads);
    const Tensor sum = ops::add(a, b), quotient = ops::div(a, b), positive = ops::relu(a);
    for (int64_t from = 0; from < kMost; from += kPart) {
      const int64_t to = std::min(from + kPart, kMost);
      const Tensor x = ops::slice(a, 0, from, to), y = ops::slice(b, 0, from, to);
      CHECK(bit_equal(ops::slice(sum, 0, from, to), ops::add(x, y)));
      CHECK(bit_equal(ops::slice(quotient, 0, from, to), ops::div(x, y)));
      CHECK(bit_equal(ops::slice(positive, 0, from, to), ops::relu(x)));
    }
  }
  ops::set_num_threads(before);
}

TEST_CASE("the number of threads is checked and kept") {
  const int before = ops::num_threads();
  CHECK_THROWS_AS(ops::set_num_threads(0), Error);
  CHECK_THROWS_AS(ops::set_num_threads(100000), Error);
  CHECK(ops::num_threads() == before);
  ops::set_num_threads(2);
  CHECK(ops::num_threads() == 2);
  const Tensor a = random({200, 300}, float32), b = random({300, 100}, float32, 2);
  CHECK(difference(ops::matmul(a, b), naive(a, b), 0, 6e-4) == "");
  ops::set_num_threads(before);
}

TEST_CASE("float32 functions are within a few units of the last place over their range") {
  const struct {
    Tensor (*op)(const Tensor&);
    double (*exact)(double);
    double low, high, within = 6e-7;
  } cases[] = {{ops::exp, [](double x) { return std::exp(x); }, -87, 88},
               {ops::log, [](double x) { return std::log(x); }, 1e-30, 10},
               {ops::tanh, [](double x) { return std::tanh(x); }, -12, 12},
               {[](const Tensor& x) { return ops::gelu(x); },
                [](double x) { return 0.5 * x * std::erfc(-x * std::sqrt(0.5)); }, -14, 14, 1e-6},
               {ops::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -80, 80}};
  for (const auto& c : cases) {
    Generator g(5);
    const Tensor x = empty({10007});
    for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = static_cast<float>(g.uniform(c.low, c.high));
    const Tensor y = c.op(x);
    double worst = 0;
    for (int64_t i = 0; i < x.numel(); ++i) {
      const double wanted = c.exact(static_cast<double>(x.data<float>()[i]));
      worst = std::max(
          worst, std::fabs(static_cast<double>(y.data<float>()[i]) - wanted) / (std::fabs(wanted) + 1e-7));
    }
    CHECK(worst < c.within);
  }
}

TEST_CASE("special values pass through as IEEE says") {
  constexpr float kInf = std::numeric_limits<float>::infinity(),
                  kNan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = tensor({kNan, kInf, -kInf, 0.f, -1.f});
  const auto exp = ops::exp(x).to_vector<float>(), log = ops::log(x).to_vector<float>(),
             relu = ops::relu(x).to_vector<float>(), tanh = ops::tanh(x).to_vector<float>(),
             sigmoid = ops::sigmoid(x).to_vector<float>();
  CHECK((std::isnan(exp[0]) && exp[1] == kInf && exp[2] == 0 && exp[3] == 1));
  CHECK(
      (std::isnan(log[0]) && log[1] == kInf && std::isnan(log[2]) && log[3] == -kInf && std::isnan(log[4])));
  CHECK((std::isnan(relu[0]) && relu[1] == kInf && relu[2] == 0));
  CHECK((std::isnan(tanh[0]) && tanh[1] == 1 && tanh[2] == -1));
  CHECK((std::isnan(sigmoid[0]) && sigmoid[1] == 1 && sigmoid[2] == 0));
  CHECK(std::isnan(ops::amax(x, {}).item()));
  CHECK(std::isnan(ops::maximum(x, tensor(0.0)).to_vector<float>()[0]));
  CHECK(ops::argmax(x, 0).item() == 0);
  CHECK(ops::logsumexp(tensor({-kInf, -kInf}), {}).item() == -kInf);
}

TEST_CASE("long float32 sums keep their digits") {
  const Tensor x = full({1000003}, 0.1);
  CHECK(ops::sum(x).item() == Approx(100000.3).epsilon(1e-7));
  CHECK(difference(ops::sum(full({10001, 3}, 0.1), {0}), full({3}, 1000.1), 1e-6, 0) == "");
  CHECK(ops::sum(zeros({0, 3}), {0}).to_vector<float>() == std::vector<float>{0, 0, 0});
  CHECK(std::isnan(ops::mean(zeros({0})).item()));
}

TEST_CASE("reshape views where strides allow it and copies where not") {
  const Tensor x = random({4, 6}, float32);
  const Tensor halves = ops::reshape(x.slice(1, 0, 3), {2, 2, 3});
  CHECK(halves.storage() == x.storage());
  CHECK(difference(halves, ops::reshape(x.slice(1, 0, 3).clone(), {2, 2, 3}), 0, 0) == "");
  const Tensor turned = x.transpose(0, 1).reshape({24});
  CHECK(turned.storage() != x.storage());
  CHECK(turned.to_vector<float>() == x.transpose(0, 1).to_vector<float>());
}

TEST_CASE("contiguous copies of permuted views have their elements in order, in whole tiles and in parts") {
  const Shape shape = GENERATE(Shape{1, 1, 40, 50}, Shape{3, 2, 16, 16}, Shape{17, 3, 33, 1},
                               Shape{31, 1, 2, 64}, Shape{16, 5, 0, 16}, Shape{2, 300, 70, 1});
  const std::vector<int64_t> order =
      GENERATE(std::vector<int64_t>{0, 1, 3, 2}, std::vector<int64_t>{3, 1, 2, 0},
               std::vector<int64_t>{1, 3, 0, 2}, std::vector<int64_t>{2, 3, 0, 1});
  const DType dtype = GENERATE(float32, float64, int64, boolean);
  Tensor x = empty(shape, dtype);
  for (size_t i = 0; i < x.nbytes(); ++i)
    x.bytes()[i] = static_cast<std::byte>(dtype == boolean ? i / 7 % 2 : i * 37);
  const Tensor view = x.permute(order);
  const Tensor once = view.clone_data(), recorded = ops::clone(view);
  const size_t size = x.numel() ? x.nbytes() / static_cast<size_t>(x.numel()) : 0;
  for (int64_t i = 0; i < view.numel(); ++i) {
    int64_t from = 0, rest = i;
    for (int d = 3; d >= 0; rest /= view.shape()[d--]) from += rest % view.shape()[d] * view.strides()[d];
    const auto at = [&](const Tensor& t, int64_t k) { return t.bytes() + static_cast<size_t>(k) * size; };
    if (std::memcmp(at(once, i), at(x, from), size) != 0 ||
        std::memcmp(at(recorded, i), at(x, from), size) != 0)
      FAIL("element " << i << " of " << view.summary() << " is another one");
  }
}

TEST_CASE("updates in place without grad mode change the elements, bump the version and record nothing") {
  for (const bool strided : {false, true}) {
    const Tensor memory = full({4, 2}, 2, float64);
    Tensor a = strided ? memory.transpose(0, 1) : full({2, 4}, 2, float64);
    const Tensor b = full({2, 4}, 3, float64), c = full({2, 4}, 4, float64);
    const uint32_t version = a.version();
    a.requires_grad_();
    NoGradGuard off;
    ops::add_(a, b, 2);           // 8
    ops::mul_(a, 0.5);            // 4
    ops::addcmul_(a, b, c, 0.5);  // 10
    ops::addcdiv_(a, b, c, 4);    // 13
    ops::lerp_(a, b, 0.5);        // 8
    ops::maximum_(a, c);          // 8
    ops::add_(a, 1.0);            // 9
    ops::sqrt_(a);                // 3
    CHECK(a.to_vector<double>() == std::vector<double>(8, 3));
    CHECK(a.version() == version + 8);
    CHECK(a.is_leaf());
  }
}

TEST_CASE("random tensors repeat for a seed and have the moments of their distribution") {
  Generator g(3), h(3);
  const Tensor x = ops::randn({100, 100}, g), y = ops::randn({100, 100}, h);
  CHECK(bit_equal(x, y));
  CHECK(std::fabs(ops::mean(x).item()) < 0.05);
  CHECK(ops::var(x, {}).item() == Approx(1).margin(0.05));
  const Tensor u = ops::rand({10000}, g);
  CHECK((ops::amin(u, {}).item() >= 0 && ops::amax(u, {}).item() < 1));
  CHECK(ops::mean(u).item() == Approx(0.5).margin(0.02));
  auto p = ops::randperm(50, g).to_vector<int64_t>();
  std::sort(p.begin(), p.end());
  for (int64_t i = 0; i < 50; ++i) CHECK(p[static_cast<size_t>(i)] == i);
}

}  // namespace
