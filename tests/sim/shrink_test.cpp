#include "troupe/simulated/shrink.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>

#include "core/base/generator.h"

using troupe::internal::shrink;

TEST_CASE("of a list that fails what has to be there remains and nothing else") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    troupe::Generator random(seed);
    std::vector<int> all(1 + random.below(40)), needed;
    std::iota(all.begin(), all.end(), 0);
    for (const int i : all)
      if (random.below(5) == 0) needed.push_back(i);
    size_t tried = 0;
    const auto rest = shrink<int>(all, [&](const std::vector<int>& some) {
      ++tried;
      return std::includes(some.begin(), some.end(), needed.begin(), needed.end());
    });
    CHECK(rest == needed);
    CHECK(tried <= 4 * all.size() + 10 + needed.size() * needed.size());
  }
}

TEST_CASE("what remains of a list fails and does not with any one left out") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    troupe::Generator random(seed);
    std::vector<uint64_t> all(1 + random.below(12));
    for (auto& n : all) n = random.below(10);
    const uint64_t enough = 5 + random.below(20);
    const auto fails = [&](const std::vector<uint64_t>& some) {
      return std::accumulate(some.begin(), some.end(), uint64_t{0}) >= enough;
    };
    if (!fails(all)) continue;
    const auto rest = shrink<uint64_t>(all, fails);
    CHECK(fails(rest));
    for (size_t i = 0; i < rest.size(); ++i) {
      auto fewer = rest;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      CHECK_FALSE(fails(fewer));
    }
  }
}
