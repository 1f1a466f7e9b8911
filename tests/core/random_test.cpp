// Random numbers: published vectors, repeatability, and enough statistics to catch a blunder.
#include "core/base/generator.h"

#include <algorithm>
#include <catch2/catch.hpp>

using namespace troupe;

namespace {

std::vector<uint64_t> first(Generator g, int n) {
  std::vector<uint64_t> out;
  for (int i = 0; i < n; ++i) out.push_back(g.next());
  return out;
}

}  // namespace

TEST_CASE("splitmix64 gives the published numbers") {
  constexpr uint64_t kStep = 0x9e3779b97f4a7c15;  // from one state to the next
  const uint64_t from_zero[] = {0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f,
                                0xf88bb8a8724c81ec};
  for (uint64_t i = 0; i < 4; ++i) CHECK(splitmix64(i * kStep) == from_zero[i]);
  const uint64_t from_1234567[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                                   4593380528125082431u, 16408922859458223821u};
  for (uint64_t i = 0; i < 5; ++i) CHECK(splitmix64(1234567 + i * kStep) == from_1234567[i]);
}

TEST_CASE("the same seed gives the same numbers, another seed others") {
  CHECK(first(Generator(42), 100) == first(Generator(42), 100));
  CHECK(first(Generator(42), 100) != first(Generator(43), 100));
  CHECK(first(Generator(), 10) == first(Generator(0), 10));
}

TEST_CASE("split streams differ from each other and from their parent, and repeat") {
  const Generator parent(1);
  std::vector<uint64_t> all = first(parent, 1000);
  for (uint64_t s = 0; s < 20; ++s) {
    CHECK(first(parent.split(s), 1000) == first(Generator(1).split(s), 1000));
    const auto stream = first(parent.split(s), 1000);
    all.insert(all.end(), stream.begin(), stream.end());
  }
  std::sort(all.begin(), all.end());
  CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
  Generator used(1);
  used.next();
  CHECK(first(used.split(3), 5) == first(parent.split(3), 5));  // wherever the parent stands
}

TEST_CASE("uniform numbers are in their range and spread evenly") {
  Generator g(7);
  constexpr int kDraws = 100'000, kBins = 20;
  int bins[kBins] = {};
  double sum = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double u = g.uniform();
    REQUIRE((u >= 0 && u < 1));
    ++bins[static_cast<int>(u * kBins)];
    sum += u;
    const double v = g.uniform(-3, 5);
    REQUIRE((v >= -3 && v < 5));
  }
  CHECK(sum / kDraws == Approx(0.5).margin(0.005));  // five standard deviations
  double chi = 0;
  for (const int n : bins) chi += (n - kDraws / kBins) * double(n - kDraws / kBins) / (kDraws / kBins);
  CHECK(chi < 60);  // 19 degrees of freedom: one in 4 million
  CHECK(chi > 2);   // nor too even
}

TEST_CASE("normal numbers have mean 0, variance 1 and the right tails") {
  Generator g(8);
  constexpr int kDraws = 100'000;
  double sum = 0, squares = 0;
  int beyond = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = g.normal();
    REQUIRE(std::isfinite(x));
    sum += x, squares += x * x, beyond += std::fabs(x) > 2;
  }
  CHECK(sum / kDraws == Approx(0).margin(0.016));
  CHECK(squares / kDraws == Approx(1).margin(0.025));
  CHECK(beyond / double(kDraws) == Approx(0.0455).margin(0.0035));
}

TEST_CASE("below(n) reaches every number under n evenly") {
  Generator g(9);
  int counts[7] = {};
  for (int i = 0; i < 70'000; ++i) ++counts[g.below(7)];
  for (const int c : counts) CHECK(c == Approx(10'000).margin(500));
  CHECK(g.below(1) == 0);
  for (int i = 0; i < 100; ++i) CHECK(g.below(uint64_t{1} << 63) < uint64_t{1} << 63);
}

TEST_CASE("a permutation has every number once, in an order that depends on the seed") {
  Generator g(10);
  CHECK(g.permutation(0).empty());
  CHECK(g.permutation(1) == std::vector<int64_t>{0});
  const auto q = g.permutation(1000);
  auto p = g.permutation(1000);
  CHECK((p != q));  // the stream has moved on
  CHECK((q == Generator(10).permutation(1000)));
  CHECK((q != Generator(11).permutation(1000)));
  std::sort(p.begin(), p.end());
  for (int64_t i = 0; i < 1000; ++i) REQUIRE(p[static_cast<size_t>(i)] == i);
  int where[3][3] = {};  // each number on each place about equally often
  for (int i = 0; i < 30'000; ++i) {
    const auto three = g.permutation(3);
    for (size_t place = 0; place < 3; ++place) ++where[three[place]][place];
  }
  for (const auto& row : where)
    for (const int n : row) CHECK(n == Approx(10'000).margin(450));
}
