// The end of a backward pass: reports in any order, failures, lost workers.
#include <catch2/catch.hpp>

#include <map>

#include "autograd/distributed/termination.h"
#include "core/base/generator.h"

using namespace troupe;
using namespace troupe::autograd;

TEST_CASE("a pass ends when every message has been reported, whatever the order of the reports") {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    INFO("seed " << seed);
    Generator random(seed);
    // A random tree of messages; reports arrive in random order, children's before their parents' or after.
    std::vector<std::vector<SentGrad>> children(1);
    for (size_t m = 0; m < children.size(); ++m) {
      const uint64_t n = children.size() < 40 ? random.below(4) : 0;
      for (uint64_t c = 0; c < n; ++c) {
        children[m].push_back({children.size() + 1, static_cast<WorkerId>(random.below(5))});
        children.emplace_back();
      }
    }
    Termination t({1, 0});
    const auto order = random.permutation(static_cast<int64_t>(children.size()));
    for (size_t i = 0; i < order.size(); ++i) {
      REQUIRE_FALSE(t.over());
      const auto m = static_cast<size_t>(order[i]);
      t.handled(m + 1, children[m]);
    }
    REQUIRE(t.over());
    REQUIRE_FALSE(t.failure());
    REQUIRE(t.outstanding().empty());
  }
}

TEST_CASE("a lost worker fails a pass that waits for it, and no other") {
  Termination t({1, 0});
  t.handled(1, {{2, 5}, {3, 6}});
  t.handled(2, {});
  t.lost(5, Error(ErrorKind::disconnected, "five"));
  CHECK_FALSE(t.over());
  CHECK(t.outstanding() == std::vector<WorkerId>{6});
  t.lost(6, Error(ErrorKind::disconnected, "six"));
  CHECK(t.over());
  CHECK(t.failure()->message() == "six");
}

TEST_CASE("a message is lost with its sender, although its receiver lives") {
  const auto from = [](WorkerId sender, uint64_t n) { return GradMessageId{sender} << 40 | n; };
  Termination t({1, 0});
  t.handled(1, {{from(0, 2), 5}});
  t.handled(from(0, 2), {{from(5, 1), 6}});  // 5 says that it has sent one to 6, and dies
  t.lost(5, Error(ErrorKind::disconnected, "five"));
  CHECK(t.over());
  CHECK(t.failure()->message() == "five");
}

TEST_CASE("the first failure ends a pass") {
  Termination t({1, 0});
  t.fail(Error(ErrorKind::failed, "first"));
  t.fail(Error(ErrorKind::failed, "second"));
  t.handled(1, {});
  CHECK(t.over());
  CHECK(t.failure()->message() == "first");
}
