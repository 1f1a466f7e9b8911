// The table of calls that wait for arguments from other workers, alone: who may bring what, and how much.
#include "actors/calls/late_arguments.h"

#include <catch2/catch.hpp>

using namespace troupe;
using namespace troupe::internal::actors;

namespace {

constexpr WorkerId kCaller = 0, kMaker = 1, kOtherMaker = 2;

struct FakeCall final : Cancellable {
  void run() override {}
  void cancel() override {}
};

}  // namespace

TEST_CASE("an argument is taken from its maker or from the caller alone") {
  LateArguments table;
  const Ref<Cancellable> call = make_ref<FakeCall>();
  REQUIRE(table.arrived(kCaller, 1, {{0, kMaker}, {2, kOtherMaker}}));
  const auto came = [&](WorkerId sender, uint32_t index) {
    return table.came(sender, kCaller, 1, {.index = index, .value = Value(int64_t{index})});
  };
  CHECK_THROWS_WITH(came(kOtherMaker, 0),
                    "[call] worker 2 brought argument 0 of a call of worker 0 that waits for worker 1");
  CHECK_THROWS_WITH(came(kMaker, 1),
                    "[call] worker 1 brought argument 1 of a call that waits for no such argument");
  CHECK_FALSE(came(kMaker, 0).call);
  CHECK_FALSE(came(kMaker, 0).call);  // a second time: nothing
  CHECK_FALSE(table.ready(kCaller, 1, call).call);
  const auto whole = came(kCaller, 2);
  REQUIRE(whole.call.get() == call.get());
  CHECK(whole.arguments.size() == 2);
  CHECK_FALSE(came(kMaker, 0).call);  // its call has ended
  CHECK(table.calls() + table.early() == 0);
}

TEST_CASE("an early argument from another than its maker is dropped when the call is here") {
  LateArguments table;
  CHECK_FALSE(table.came(kOtherMaker, kCaller, 2, {.index = 0, .value = Value(true)}).call);
  CHECK_FALSE(table.came(kOtherMaker, kCaller, 1, {.index = 0, .value = Value(true)}).call);
  CHECK_FALSE(table.came(kMaker, kCaller, 2, {.index = 0, .value = Value(int64_t{7})}).call);
  CHECK(table.early() == 3);
  REQUIRE(table.arrived(kCaller, 2, {{0, kMaker}}));
  CHECK(table.early() == 0);
  const auto whole = table.ready(kCaller, 2, make_ref<FakeCall>());
  REQUIRE(whole.call);
  REQUIRE(whole.arguments.size() == 1);
  CHECK(*whole.arguments[0].value.value().get_if<int64_t>() == 7);
  CHECK_FALSE(table.arrived(kCaller, 1, {{0, kMaker}}));  // numbers grow
  CHECK_FALSE(table.came(kMaker, kCaller, 1, {.index = 0}).call);
  CHECK(table.calls() + table.early() == 0);
}

TEST_CASE("early arguments of one worker are bounded") {
  LateArguments table({.bytes = 100, .arguments = 3});
  const auto came = [&](uint64_t number, size_t bytes) {
    return table.came(kMaker, kCaller, number, {.index = 0, .value = Value(true), .bytes = bytes});
  };
  (void)came(1, 60);
  (void)came(2, 60);
  (void)came(3, 40);
  CHECK_THROWS_WITH(came(4, 1),
                    "[call] worker 1 brought 3 arguments of calls that have not arrived; the limit is 3");
  (void)table.came(kOtherMaker, kCaller, 4, {.index = 0, .bytes = 100});  // has room of its own
  REQUIRE(table.arrived(kCaller, 1, {{0, kMaker}}));
  REQUIRE(table.ready(kCaller, 1, make_ref<FakeCall>()).call);
  REQUIRE(table.arrived(kCaller, 2, {{0, kMaker}}));
  const auto refused = table.ready(kCaller, 2, make_ref<FakeCall>());
  REQUIRE(refused.error);
  CHECK(refused.error->kind() == ErrorKind::overloaded);
  CHECK(
      refused.error->message() ==
      "[call] an argument of 60 bytes came before its call, beside 60 bytes of others from the same worker; "
      "the limit is 100");
  CHECK(table.lost(kCaller, Error(ErrorKind::disconnected, "lost")).empty());
  CHECK(table.early() == 0);
  CHECK_FALSE(came(9, 1).call);  // of a caller that is gone: dropped
  CHECK(table.early() == 0);
}
