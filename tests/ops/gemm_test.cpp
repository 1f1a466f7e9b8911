// The products that are chosen by shape and by processor, each by itself, on every shape.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "core/base/generator.h"
#include "ops/cpu/gemm/gemm.h"
#include "ops/cpu/gemm/panels.h"
#include "ops/dispatch/threads.h"

namespace troupe::ops::on_cpu {
namespace {

using Gemm = void(int64_t, int64_t, int64_t, const Matrix<float>&, const Matrix<float>&, float, float*,
                  const Finish<float>&, float*, PackedMatrix*);

struct Way {
  const char* name;
  Gemm* gemm;
};

// Those that this processor has.
std::vector<Way> ways() {
  std::vector<Way> all;
  if (has_gemm_tiles()) all.push_back({"gemm_tiles", gemm_tiles});
  if (has_gemm_amx()) all.push_back({"gemm_amx", gemm_amx});
  if (all.size() < 2) WARN("of gemm_tiles and gemm_amx this processor has " << all.size());
  return all;
}

std::vector<float> numbers(int64_t n, uint64_t seed) {
  Generator g(seed);
  std::vector<float> out(static_cast<size_t>(n));
  for (float& x : out) x = static_cast<float>(g.uniform(-2, 2));
  return out;
}

struct Case {
  int64_t m, n, k;
  bool flip_a = false, flip_b = false;
  std::vector<float> a = numbers(m * k, 1), b = numbers(k * n, 2);

  Matrix<float> left() const { return {a.data(), flip_a ? m : k, flip_a}; }
  Matrix<float> right() const { return {b.data(), flip_b ? k : n, flip_b}; }
  float& at_a(int64_t i, int64_t l) { return a[static_cast<size_t>(flip_a ? l * m + i : i * k + l)]; }
  float& at_b(int64_t l, int64_t j) { return b[static_cast<size_t>(flip_b ? j * k + l : l * n + j)]; }
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
  std::vector<float> run(const Way& way, const Finish<float>& finish = {}, float beta = 0, float before = 0,
                         float* sums = nullptr, PackedMatrix* kept = nullptr) {
    std::vector<float> c(static_cast<size_t>(m * n), before);
    way.gemm(m, n, k, left(), right(), beta, c.data(), finish, sums, kept);
    return c;
  }
};

const int64_t kSizes[][3] = {{1, 1, 1},     {1, 33, 2},      {17, 16, 31},   {16, 17, 32},
                             {32, 32, 33},  {33, 31, 65},    {64, 512, 144}, {49, 15, 1040},
                             {300, 70, 96}, {531, 193, 260}, {20, 3300, 40}, {48, 48, 513}};

TEST_CASE("each kind of product equals the sums in double within float32's rounding") {
  for (const Way& way : ways())
    for (const auto& [m, n, k] : kSizes)
      for (const bool flip_a : {false, true})
        for (const bool flip_b : {false, true}) {
          INFO(way.name << ' ' << m << " x " << n << " x " << k << (flip_a ? " a across" : "")
                        << (flip_b ? " b across" : ""));
          Case product{m, n, k, flip_a, flip_b};
          std::vector<float> sums(static_cast<size_t>(m));
          const std::vector<float> c = product.run(way, {}, 1, 0.5f, sums.data());
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
          CHECK(worst < 4e-7);
          CHECK(worst_sum < 1e-5 * std::sqrt(static_cast<double>(k)));
        }
}

TEST_CASE("each kind of product has the same bits on any number of threads, and the errors of float32") {
  const int before = num_threads();
  for (const Way& way : ways())
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{512, 300, 600}, {64, 1000, 784}, {700, 3400, 40}}) {
      INFO(way.name << ' ' << m << " x " << n << " x " << k);
      Case product{m, n, k, false, true};
      set_num_threads(1);
      const std::vector<float> one = product.run(way);
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
      CHECK(std::sqrt(squares / count) < 4e-8);
    }
  set_num_threads(before);
}

TEST_CASE("a B that is kept packed gives the same bits, at first and from then on, whatever the rows of A") {
  const int before = num_threads();
  for (const Way& way : ways())
    for (const auto& [m, n, k] : kSizes)
      for (const bool flip_b : {false, true}) {
        INFO(way.name << ' ' << m << " x " << n << " x " << k << (flip_b ? " b across" : ""));
        PackedMatrix kept;
        const std::vector<float> b = numbers(n * k, 5);
        for (const int64_t rows : {m, int64_t{1}, m + 70, m}) {
          set_num_threads(rows > m ? 3 : 1);
          Case product{rows, n, k, false, flip_b, numbers(rows * k, static_cast<uint64_t>(rows)), b};
          CHECK(product.run(way, {}, 1, 0.5f, nullptr, &kept) == product.run(way, {}, 1, 0.5f));
        }
        CHECK(kept.bytes() >= b.size() * sizeof(float));
      }
  set_num_threads(before);
}

TEST_CASE("numbers at the ends of float32's range leave a product as they do one by one") {
  constexpr float kInf = std::numeric_limits<float>::infinity(),
                  kNaN = std::numeric_limits<float>::quiet_NaN(), kMax = std::numeric_limits<float>::max();
  for (const Way& way : ways())
    for (const bool flip : {false, true}) {
      INFO(way.name << (flip ? " across" : ""));
      SECTION(std::string("infinities and NaN stay where they belong: ") + way.name +
              (flip ? " across" : "")) {
        Case product{70, 75, 90, flip, !flip};
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
          Case product{40, 50, 64, flip, flip};
          for (float& x : product.a) x *= 0.5f * scale;
          for (float& x : product.b) x *= scale > 1 ? 0x1p-20f : 0x1p20f;
          const auto c = product.run(way);
          for (int64_t i = 0; i < 40; ++i)
            for (int64_t j = 0; j < 50; ++j)
              REQUIRE(std::abs(static_cast<double>(c[static_cast<size_t>(i * 50 + j)]) -
                               product.exact(i, j)) <= 1e-6 * product.magnitude(i, j));
        }
        Case zero{40, 50, 64, flip, flip};
        std::fill(zero.a.begin(), zero.a.end(), 0.f);
        CHECK(zero.run(way) == std::vector<float>(40 * 50, 0.f));
        zero.b[5] = kNaN;
        const auto c = zero.run(way);
        CHECK(std::count_if(c.begin(), c.end(), [](float x) { return std::isnan(x); }) == 40);
      }
    }
}

TEST_CASE("tiny factors beside large ones lose what is below 2^-126, and no more") {
  for (const Way& way : ways()) {
    Case product{64, 64, 96};
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
}  // namespace troupe::ops::on_cpu
