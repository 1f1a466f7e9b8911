// The products that are chosen by shape and by processor, each by itself, on every shape.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <type_traits>
#include <vector>

#include "core/base/generator.h"
#include "ops/cpu/gemm/gemm.h"
#include "ops/cpu/gemm/gemm_kernels.h"
#include "ops/cpu/gemm/panels.h"
#include "ops/cpu/loops/simd.h"
#include "ops/dispatch/threads.h"

using namespace troupe;
using namespace troupe::ops;
using namespace troupe::ops::on_cpu;

namespace {

template <class T>
using Gemm = void(int64_t, int64_t, int64_t, const Matrix<T>&, const Matrix<T>&, T, T*, const Finish<T>&, T*,
                  PackedMatrix*);

template <class T>
struct Way {
  const char* name;
  Gemm<T>* gemm;
};

void doubles_in_avx2(int64_t m, int64_t n, int64_t k, const Matrix<double>& a, const Matrix<double>& b,
                     double beta, double* c, const Finish<double>& finish, double* sums, PackedMatrix*) {
  gemm_avx2(m, n, k, a, b, beta, c, finish, sums);
}
void doubles(int64_t m, int64_t n, int64_t k, const Matrix<double>& a, const Matrix<double>& b, double beta,
             double* c, const Finish<double>& finish, double* sums, PackedMatrix*) {
  gemm(m, n, k, a, b, beta, c, finish, sums);
}

// Those that this processor has, at any level that its kernels may be held to.
template <class T = float>
std::vector<Way<T>> ways() {
  std::vector<Way<T>> all;
#if defined(__x86_64__)
  const bool avx2 = has_gemm_tiles(), avx512 = avx2 && level() >= CpuLevel::avx512;
  if constexpr (std::is_same_v<T, float>) {
    if (avx2) all.push_back({"gemm_avx2", gemm_avx2});
    if (avx512) all.push_back({"gemm_avx512", gemm_avx512});
    if (has_gemm_amx()) all.push_back({"gemm_amx", gemm_amx});
    if (all.size() < 3) WARN("of tiles in AVX2, AVX-512 and AMX this processor has " << all.size());
  } else if (avx2) {
    all.push_back({"gemm_avx2", doubles_in_avx2});
  }
#endif
  if constexpr (std::is_same_v<T, double>) all.push_back({"gemm", doubles});
  return all;
}

template <class T = float>
std::vector<T> numbers(int64_t n, uint64_t seed) {
  Generator g(seed);
  std::vector<T> out(static_cast<size_t>(n));
  for (T& x : out) x = static_cast<T>(g.uniform(-2, 2));
  return out;
}

template <class T = float>
struct Case {
  int64_t m, n, k;
  bool flip_a = false, flip_b = false;
  std::vector<T> a = numbers<T>(m * k, 1), b = numbers<T>(k * n, 2);

  Matrix<T> left() const { return {a.data(), flip_a ? m : k, flip_a}; }
  Matrix<T> right() const { return {b.data(), flip_b ? k : n, flip_b}; }
  T& at_a(int64_t i, int64_t l) { return a[static_cast<size_t>(flip_a ? l * m + i : i * k + l)]; }
  T& at_b(int64_t l, int64_t j) { return b[static_cast<size_t>(flip_b ? j * k + l : l * n + j)]; }
  double exact(int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t l = 0; l < k; ++l) sum += static_cast<double>(at_a(i, l)) * static_cast<double>(at_b(l, j));
    return sum;
  }
  double magnitude(int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t l = 0; l < k; ++l)
      sum += std::abs(static_cast<double>(at_a(i, l)) * static_cast<double>(at_b(l, j)));
    return sum;
  }
  std::vector<T> run(const Way<T>& way, const Finish<T>& finish = {}, T beta = 0, T before = 0,
                     T* sums = nullptr, PackedMatrix* kept = nullptr) {
    std::vector<T> c(static_cast<size_t>(m * n), before);
    way.gemm(m, n, k, left(), right(), beta, c.data(), finish, sums, kept);
    return c;
  }
};

const int64_t kSizes[][3] = {{1, 1, 1},     {1, 33, 2},      {5, 5, 7},      {6, 7, 6},
                             {7, 8, 9},     {17, 16, 31},    {16, 17, 32},   {13, 80, 8},
                             {32, 32, 33},  {33, 31, 65},    {64, 512, 144}, {49, 15, 1040},
                             {300, 70, 96}, {531, 193, 260}, {20, 4200, 40}, {48, 48, 513}};

TEMPLATE_TEST_CASE("each kind of product equals the sums in double within its rounding", "", float, double) {
  using T = TestType;
  constexpr double kUnit = static_cast<double>(std::numeric_limits<T>::epsilon());
  for (const auto& way : ways<T>())
    for (const auto& [m, n, k] : kSizes)
      for (const bool flip_a : {false, true})
        for (const bool flip_b : {false, true}) {
          INFO(way.name << ' ' << m << " x " << n << " x " << k << (flip_a ? " a across" : "")
                        << (flip_b ? " b across" : ""));
          Case<T> product{m, n, k, flip_a, flip_b};
          std::vector<T> sums(static_cast<size_t>(m));
          const std::vector<T> c = product.run(way, {}, 1, T{0.5}, sums.data());
          double worst = 0, worst_sum = 0;
          for (int64_t i = 0; i<m; i += m> 40 ? 7 : 1) {
            double sum = 0;
            for (int64_t l = 0; l < k; ++l) sum += static_cast<double>(product.at_a(i, l));
            worst_sum =
                std::max(worst_sum, std::abs(static_cast<double>(sums[static_cast<size_t>(i)]) - sum));
            for (int64_t j = 0; j<n; j += n> 40 ? 5 : 1)
              worst = std::max(worst, std::abs(static_cast<double>(c[static_cast<size_t>(i * n + j)]) - 0.5 -
                                               product.exact(i, j)) /
                                          (product.magnitude(i, j) + 0.5));
          }
          CHECK(worst < 4 * kUnit);
          CHECK(worst_sum < 80 * kUnit * std::sqrt(static_cast<double>(k)));
        }
}

TEMPLATE_TEST_CASE("each kind of product has the same bits on any number of threads, and small errors", "",
                   float, double) {
  using T = TestType;
  const int before = num_threads();
  for (const auto& way : ways<T>())
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{512, 300, 600}, {64, 1000, 784}, {700, 3400, 40}}) {
      INFO(way.name << ' ' << m << " x " << n << " x " << k);
      Case<T> product{m, n, k, false, true};
      set_num_threads(1);
      const std::vector<T> one = product.run(way);
      for (const int threads : {2, 5}) {
        set_num_threads(threads);
        CHECK(product.run(way) == one);
      }
      // A sum of k products, each step rounded, strays by about 2^-24 sqrt(k) of their root mean square.
      double squares = 0, count = 0;
      for (int64_t i = 0; i < m; i += 13)
        for (int64_t j = 0; j < n; j += 17, ++count)
          squares +=
              std::pow((static_cast<double>(one[static_cast<size_t>(i * n + j)]) - product.exact(i, j)) /
                           product.magnitude(i, j),
                       2);
      CHECK(std::sqrt(squares / count) < 0.35 * static_cast<double>(std::numeric_limits<T>::epsilon()));
    }
  set_num_threads(before);
}

TEMPLATE_TEST_CASE("each kind of product adds bias, activation and residual on the way out", "", float,
                   double) {
  using T = TestType;
  for (const auto& way : ways<T>())
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{5, 7, 3}, {64, 96, 40}, {130, 77, 600}})
      for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu})
        for (const int64_t gap : {0, 5}) {
          INFO(way.name << ' ' << m << " x " << n << " x " << k << ' ' << static_cast<int>(activation) << ' '
                        << gap);
          Case<T> product{m, n, k, true, true};
          const int64_t ldc = n + gap;
          const std::vector<T> bias = numbers<T>(n, 3), residual = numbers<T>(m * ldc, 4);
          std::vector<T> c(static_cast<size_t>(m * ldc), T{7}), slope = c;
          Finish<T> finish{bias.data(), activation, slope.data(), residual.data(), gap ? ldc : 0};
          way.gemm(m, n, k, product.left(), product.right(), T{0}, c.data(), finish, nullptr, nullptr);
          const double near = 40 * static_cast<double>(std::numeric_limits<T>::epsilon());
          for (int64_t i = 0; i<m; i += m> 40 ? 7 : 1)
            for (int64_t j = 0; j < ldc; ++j) {
              const auto at = static_cast<size_t>(i * ldc + j);
              if (j >= n) {
                REQUIRE(c[at] == T{7});
                continue;
              }
              const double x = product.exact(i, j) + static_cast<double>(bias[static_cast<size_t>(j)]),
                           below = 0.5 * std::erfc(-x / std::sqrt(2.0));
              const double y = activation == Activation::none   ? x
                               : activation == Activation::relu ? std::max(x, 0.0)
                                                                : x * below;
              const double scale = near * (1 + product.magnitude(i, j));
              REQUIRE(std::abs(static_cast<double>(c[at]) - y - static_cast<double>(residual[at])) < scale);
              if (activation != Activation::gelu) continue;
              const double density = std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
              REQUIRE(std::abs(static_cast<double>(slope[at]) - below - x * density) < scale);
            }
        }
}

TEMPLATE_TEST_CASE("a product reads and writes where its matrices are, and nowhere else", "", float, double) {
  using T = TestType;
  for (const auto& way : ways<T>())
    for (const bool flip_a : {false, true})
      for (const bool flip_b : {false, true})
        for (const auto& [m, n, k] : {std::array<int64_t, 3>{6, 9, 5}, {47, 83, 61}, {140, 150, 300}})
          for (const int64_t shift : {0, 1, 3}) {
            INFO(way.name << ' ' << m << " x " << n << " x " << k << (flip_a ? " a across" : "")
                          << (flip_b ? " b across" : "") << " from " << shift);
            Case<T> product{m, n, k, flip_a, flip_b};
            // The same within larger arrays whose other elements are NaN, up to the last one that counts.
            const auto within = [shift = shift](const std::vector<T>& from, int64_t wide, int64_t ld) {
              const auto rows = static_cast<int64_t>(from.size()) / wide;
              std::vector<T> to(static_cast<size_t>(shift + (rows - 1) * ld + wide),
                                std::numeric_limits<T>::quiet_NaN());
              for (int64_t i = 0; i < rows; ++i)
                std::copy_n(from.data() + i * wide, wide, to.data() + shift + i * ld);
              return to;
            };
            const int64_t wide_a = flip_a ? m : k, wide_b = flip_b ? k : n;
            const std::vector<T> a = within(product.a, wide_a, wide_a + 3),
                                 b = within(product.b, wide_b, wide_b + 5);
            std::vector<T> c = within(std::vector<T>(static_cast<size_t>(m * n)), n, n + 1);
            Finish<T> finish;
            finish.ldc = n + 1;
            way.gemm(m, n, k, {a.data() + shift, wide_a + 3, flip_a}, {b.data() + shift, wide_b + 5, flip_b},
                     T{0}, c.data() + shift, finish, nullptr, nullptr);
            const std::vector<T> want = within(product.run(way), n, n + 1);
            CHECK(std::memcmp(c.data(), want.data(), c.size() * sizeof(T)) == 0);
          }
}

TEST_CASE("a B that is kept packed gives the same bits, at first and from then on, whatever the rows of A") {
  const int before = num_threads();
  for (const auto& way : ways())
    for (const auto& [m, n, k] : kSizes)
      for (const bool flip_b : {false, true}) {
        INFO(way.name << ' ' << m << " x " << n << " x " << k << (flip_b ? " b across" : ""));
        PackedMatrix kept;
        const std::vector<float> b = numbers(n * k, 5);
        for (const int64_t rows : {m, int64_t{1}, m + 70, m}) {
          set_num_threads(rows > m ? 3 : 1);
          Case<> product{rows, n, k, false, flip_b, numbers(rows * k, static_cast<uint64_t>(rows)), b};
          CHECK(product.run(way, {}, 1, 0.5f, nullptr, &kept) == product.run(way, {}, 1, 0.5f));
        }
        CHECK(kept.bytes() >= b.size() * sizeof(float));
      }
  set_num_threads(before);
}

TEST_CASE("numbers at the ends of float32's range leave a product as they do one by one") {
  constexpr float kInf = std::numeric_limits<float>::infinity(),
                  kNaN = std::numeric_limits<float>::quiet_NaN(), kMax = std::numeric_limits<float>::max();
  for (const auto& way : ways())
    for (const bool flip : {false, true}) {
      INFO(way.name << (flip ? " across" : ""));
      SECTION(std::string("infinities and NaN stay where they belong: ") + way.name +
              (flip ? " across" : "")) {
        Case<> product{70, 75, 90, flip, !flip};
        product.at_a(3, 5) = kInf, product.at_a(40, 60) = kNaN, product.at_b(7, 70) = -kInf;
        const auto c = product.run(way);
        for (int64_t i = 0; i < 70; ++i)
          for (int64_t j = 0; j < 75; ++j) {
            const double got = static_cast<double>(c[static_cast<size_t>(i * 75 + j)]),
                         want = product.exact(i, j);
            if (std::isnan(want))
              REQUIRE(std::isnan(got));
            else if (std::isinf(want))
              REQUIRE(got == want);
            else
              REQUIRE(std::abs(got - want) < 1e-4);
          }
      }
      SECTION(std::string("the largest and the smallest numbers: ") + way.name + (flip ? " across" : "")) {
        for (const float scale : {kMax, 0x1p126f, 0x1p100f, 0x1p-60f, 0x1p-100f, 0x1p-120f, 0x1p-126f}) {
          INFO(scale);
          Case<> product{40, 50, 64, flip, flip};
          for (float& x : product.a) x *= 0.5f * scale;
          for (float& x : product.b) x *= scale > 1 ? 0x1p-20f : 0x1p20f;
          const auto c = product.run(way);
          for (int64_t i = 0; i < 40; ++i)
            for (int64_t j = 0; j < 50; ++j)
              REQUIRE(std::abs(static_cast<double>(c[static_cast<size_t>(i * 50 + j)]) -
                               product.exact(i, j)) <= 1e-6 * product.magnitude(i, j));
        }
        Case<> zero{40, 50, 64, flip, flip};
        std::fill(zero.a.begin(), zero.a.end(), 0.f);
        CHECK(zero.run(way) == std::vector<float>(40 * 50, 0.f));
        zero.b[5] = kNaN;
        const auto c = zero.run(way);
        CHECK(std::count_if(c.begin(), c.end(), [](float x) { return std::isnan(x); }) == 40);
      }
    }
}

TEST_CASE("tiny factors beside large ones lose what is below 2^-126, and no more") {
  for (const auto& way : ways()) {
    Case<> product{64, 64, 96};
    for (int64_t i = 0; i < 64; i += 2)
      for (int64_t l = 0; l < 96; ++l) product.at_a(i, l) *= 0x1p-118f;
    const auto c = product.run(way);
    double worst = 0;
    for (int64_t i = 0; i < 64; ++i)
      for (int64_t j = 0; j < 64; ++j) {
        // Of each of 96 products: 2^-126 of a factor, times the other, and as much of six parts of the
        // product.
        const double lost = i % 2 == 0 ? 96 * (2 + 6) * 0x1p-126 : 0;
        const double error =
            std::abs(static_cast<double>(c[static_cast<size_t>(i * 64 + j)]) - product.exact(i, j));
        worst = std::max(worst, error / (4e-7 * product.magnitude(i, j) + lost));
      }
    INFO(way.name);
    CHECK(worst < 1);
  }
}

}  // namespace
