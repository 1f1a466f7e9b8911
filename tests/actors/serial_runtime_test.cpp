// The runtime without threads: turns come when its owner says so, one job each.
#include "actors/runtime/serial_runtime.h"

#include <catch2/catch.hpp>

using namespace troupe::internal::actors;

namespace {

void post(Mailbox& mailbox, std::function<void()> f) {
  mailbox.post(make_job(std::move(f)), DispatchTarget::pool);
}

}  // namespace

TEST_CASE("without anybody to put them off, jobs run at once, and those posted by a job after it") {
  SerialRuntime runtime;
  auto a = runtime.make_mailbox(), b = runtime.make_mailbox();
  std::vector<int> order;
  post(*a, [&] {
    post(*b, [&] { order.push_back(2); });
    post(*a, [&] { order.push_back(3); });
    order.push_back(1);
  });
  CHECK(order == std::vector<int>{1, 2, 3});
}

TEST_CASE("the owner decides which mailbox has its turn, and within one, jobs keep their order") {
  std::vector<std::function<void()>> turns;
  SerialRuntime runtime([&](const std::function<void()>& turn) {
    turns.push_back(turn);
    return true;
  });
  auto a = runtime.make_mailbox(), b = runtime.make_mailbox();
  std::vector<int> order;
  for (int i : {1, 2}) post(*a, [&order, i] { order.push_back(i); });
  for (int i : {3, 4}) post(*b, [&order, i] { order.push_back(i); });
  REQUIRE(turns.size() == 2);  // one per mailbox at a time
  CHECK(order.empty());
  turns[1]();
  CHECK(order == std::vector<int>{3});
  CHECK(runtime.waiting() == 3);
  turns[0]();
  turns[3]();
  CHECK(order == std::vector<int>{3, 1, 2});

  SECTION("the end runs what is left, and turns that come late do nothing") {
    runtime.finish();
    CHECK(order == std::vector<int>{3, 1, 2, 4});
    CHECK(runtime.waiting() == 0);
    turns[2]();
    post(*a, [&] { order.push_back(5); });
    CHECK(order == std::vector<int>{3, 1, 2, 4, 5});
  }
}
