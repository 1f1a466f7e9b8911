// Trainers that come and go at a server: by themselves, with their workers, or under a name that is taken.
#include <catch2/catch.hpp>

#include "tests/parallel/hands.h"

using namespace troupe;
using namespace troupe::testing;

TEST_CASE("trainers join and leave a running server") {
  const Tensors start{zeros({1})}, one{ones({1})};
  Scene s(start, with_policy("bsp", 1), 1);
  s.pull(0), s.push(0, one);
  s.add(1);
  s.pull(0), s.pull(1);
  s.push(0, one);
  CHECK(s.values()[0].item() == -0.5);
  s.push(1, {full({1}, 3.0)});
  CHECK(s.values()[0].item() == -1.5);
  s.pull(0);
  s.push(0, one);
  s.hands.pop_back();  // its actor goes, and its client with it
  s.cluster.settle();
  CHECK(s.values()[0].item() == -2);
  CHECK(s.report().trainers == std::vector<std::string>{"t0"});
}

TEST_CASE("a second trainer of a name is refused at once, and does not disturb the first") {
  using Names = std::vector<std::string>;
  for (const std::string policy :
       {"bsp", "ssp(1)", "async", "quorum(1)", "delayed", "local(2)", "bsp or abort"})
    for (const int64_t expected : {1, 2}) {
      INFO(policy << " with " << expected);
      Scene s({zeros({2})}, with_policy(policy, expected), 1);
      s.cluster.settle();
      for (const size_t on : {3, 2}) {  // on another worker, and on that of the first
        const auto twin = s.cluster.here(0).spawn<Hand>(on, s.served, "t0");
        const auto told = s.cluster.await(twin.call<&Hand::pull>());
        REQUIRE_FALSE(told.ok());
        CHECK(told.error().kind() == ErrorKind::invalid);
        CHECK_THAT(told.error().what(),
                   Catch::Contains("trainer \"t0\" has not joined: another one of that name has, "
                                   "on w2; expected another name"));
      }
      s.cluster.settle();  // the twins have gone
      CHECK(s.report().trainers == Names{"t0"});
      if (expected == 2) s.add(1);
      CHECK(s.pull(0).size() == 1);
      // One that dies, or leaves, gives its name back.
      s.cluster.network().crash("w2");
      s.cluster.settle();
      s.hands[0] = s.cluster.here(0).spawn<Hand>(4, s.served, "t0");
      CHECK(s.pull(0).size() == 1);
      s.hands[0] = {};
      s.cluster.settle();
      s.hands[0] = s.cluster.here(0).spawn<Hand>(5, s.served, "t0");
      CHECK(s.pull(0).size() == 1);
      CHECK(s.report().lost == 1);
    }
}

TEST_CASE("a lost worker's step closes on the rest or is done again, as chosen, and says so") {
  const Tensors start{zeros({1})}, one{ones({1})};
  for (const bool abort : {false, true}) {
    Scene s(start, with_policy(abort ? "bsp or abort" : "bsp", 3), 3);
    for (size_t i : {0, 1, 2}) s.pull(i);
    s.push(0, one), s.push(1, one);
    const auto a = s.hands[0].call<&Hand::pull>(), b = s.hands[1].call<&Hand::pull>();
    s.cluster.settle();
    REQUIRE_FALSE(a.is_ready());
    s.cluster.network().crash("w4");
    const auto ra = s.cluster.await(a), rb = s.cluster.await(b);
    const ServerReport report = s.report();
    CHECK(report.trainers == std::vector<std::string>{"t0", "t1"});
    CHECK(report.lost == 1);
    CHECK(report.aborted == abort);
    CHECK_THAT(report.last_loss, Catch::Contains("trainer \"t2\" was lost with w4"));
    if (abort) {
      for (const auto& r : {ra, rb}) {
        REQUIRE_FALSE(r.ok());
        CHECK(r.error().kind() == ErrorKind::disconnected);
        CHECK(r.error().worker() == "w4");
        CHECK_THAT(r.error().what(), Catch::Contains("step 0 was aborted"));
      }
      CHECK(s.values()[0].item() == 0);
      for (size_t i : {0, 1}) s.pull(i);
      s.push(0, one), s.push(1, one);
    } else {
      CHECK_THAT(report.last_loss, Catch::Contains("step 0 closes on the rest"));
      CHECK(ra.value()[0].item() == -0.5);
    }
    CHECK(s.values()[0].item() == -0.5);
  }
}
