// Clients that go before their servers know of them.
#include <catch2/catch.hpp>

#include "core/base/log.h"
#include "tests/parallel/hands.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

std::vector<std::string> complaints;

}  // namespace

TEST_CASE("a client that goes while it joins has joined and left, and nobody complains") {
  complaints.clear();
  internal::log::set_sink([](internal::log::Level, const std::string& line) { complaints.push_back(line); });
  for (int after = 0; after < 12; ++after) {
    INFO("after " << after << " events");
    Scene s({full({2}, 1.0)}, with_policy("async"), 0);
    {
      const Client client(s.served, {.name = "gone"});
      for (int i = 0; i < after; ++i) s.cluster.step();
    }
    s.cluster.settle();
    CHECK(s.report().trainers.empty());
  }
  internal::log::set_sink(nullptr);
  CHECK(complaints == std::vector<std::string>{});
}
