// Where work runs, by how long it took: short work with the reader, long work in the pool, and no changing
// about.
#include "actors/runtime/dispatch_history.h"

#include <catch2/catch.hpp>

#include <random>

using namespace troupe;
using namespace troupe::internal::actors;

namespace {

constexpr Duration kQuick = std::chrono::microseconds(5), kSlow = std::chrono::milliseconds(4);

void note(DispatchHistory& pace, int times, Duration took) {
  for (int i = 0; i < times; ++i) pace.note(took);
}

}  // namespace

TEST_CASE("work that never ran, or was long once, runs in the pool, and after a short run with the reader") {
  DispatchHistory pace;
  CHECK(pace.where() == DispatchTarget::pool);
  pace.note(kQuick);
  CHECK(pace.where() == DispatchTarget::caller);
  DispatchHistory slow;
  slow.note(kSlow);
  CHECK(slow.where() == DispatchTarget::pool);
}

TEST_CASE("short work that is interrupted now and then stays with the reader") {
  DispatchHistory pace;
  note(pace, 8, kQuick);
  for (int i = 0; i < 100; ++i) {
    pace.note(kSlow);
    REQUIRE(pace.where() == DispatchTarget::caller);
    note(pace, 3, kQuick);
    REQUIRE(pace.where() == DispatchTarget::caller);
  }
}

TEST_CASE(
    "work that becomes long leaves the reader at its third run, and comes back after eight short ones") {
  DispatchHistory pace;
  note(pace, 8, kQuick);
  note(pace, 2, kSlow);
  CHECK(pace.where() == DispatchTarget::caller);
  pace.note(kSlow);
  CHECK(pace.where() == DispatchTarget::pool);
  note(pace, 7, kQuick);
  CHECK(pace.where() == DispatchTarget::pool);
  pace.note(kQuick);
  CHECK(pace.where() == DispatchTarget::caller);
}

TEST_CASE(
    "work that once was so long that nothing but itself explains it leaves the reader at once, for long") {
  DispatchHistory pace;
  note(pace, 8, kQuick);
  pace.note(2 * DispatchHistory::kVeryLong);
  CHECK(pace.where() == DispatchTarget::pool);
  note(pace, 100, kQuick);
  pace.note(kSlow);  // as after any interruption
  note(pace, DispatchHistory::kProbation - 101, kQuick);
  CHECK(pace.where() == DispatchTarget::pool);
  pace.note(kQuick);
  CHECK(pace.where() == DispatchTarget::caller);
}

TEST_CASE("work about as long as the limit keeps its place") {
  DispatchHistory pace;
  std::mt19937 random(1);
  int changes = 0;
  DispatchTarget before = pace.where();
  for (int i = 0; i < 10000; ++i) {
    pace.note(DispatchHistory::kShort + std::chrono::microseconds(static_cast<int>(random() % 21) - 10));
    changes += pace.where() != before;
    before = pace.where();
  }
  CHECK(changes < 200);  // with one mean and one limit it is thousands
}
