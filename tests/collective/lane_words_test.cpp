// The words by which small operations go by memory: in whichever order ranks read and write them, all decide
// alike, nobody takes what is not there, and nobody sleeps on; and each rule is needed for that.
#include <catch2/catch.hpp>

#include "core/base/generator.h"
#include "tests/collective/lane_world.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

LaneWorld::Plan lane_plan(std::vector<std::vector<LaneCall>> calls) {
  return {.calls = std::move(calls), .first = {}, .dies = {}, .without = {}};
}

// Programs of two ranks that between them need every rule.
std::vector<LaneWorld::Plan> lane_programs() {
  const LaneCall sum{}, message{.by_memory = false}, other{.what = 2}, unawaited{.then = LaneCall::goes_on},
      gives_up{.then = LaneCall::gives_up}, message_unawaited{.by_memory = false, .then = LaneCall::goes_on};
  std::vector<LaneWorld::Plan> all = {
      lane_plan({{sum}, {sum}}),
      lane_plan({{sum, sum}, {unawaited, sum}}),
      lane_plan({{sum}, {message}}),
      lane_plan({{sum, sum}, {unawaited, message_unawaited}}),
      lane_plan({{sum}, {other}}),
      lane_plan({{gives_up}, {sum}}),
      lane_plan({std::vector<LaneCall>(5, unawaited), {unawaited, unawaited, unawaited, unawaited, sum}}),
      lane_plan({{message, sum}, {sum, sum}}),
  };
  all.back().first = {1, 0};
  return all;
}

// What is wrong in some order, or empty; counts the orders.
std::string wrong_in_some_order(LaneWorld::Plan plan, size_t interruptions, size_t& orders) {
  AllOrders all(interruptions);
  do {
    ++orders;
    const std::string wrong =
        LaneWorld(plan, [&](const auto& ranks, auto now) { return all.choose(ranks, now); }).run();
    if (!wrong.empty()) return wrong;
  } while (all.next());
  return {};
}

LaneWorld::Plan random_lane_plan(Generator& random) {
  const size_t ranks = 2 + random.below(2), n = 1 + random.below(7);
  LaneWorld::Plan plan = lane_plan({});
  const bool all_alike = random.below(2);
  for (size_t r = 0; r < ranks; ++r) {
    plan.calls.emplace_back();
    plan.first.push_back(random.below(4) ? 0 : random.below(n));
    for (size_t i = 0; i < n; ++i) {
      LaneCall call;
      if (!all_alike) {
        call.by_memory = random.below(5) > 0;
        call.what = random.below(12) ? 1 : 2;
        if (!random.below(12)) call.then = LaneCall::gives_up;
      }
      if (call.then == LaneCall::awaits && random.below(2)) call.then = LaneCall::goes_on;
      plan.calls.back().push_back(call);
    }
  }
  return plan;
}

std::string wrong_at_random(const LaneWorld::Plan& plan, Generator& random) {
  const size_t stays = random.below(8);
  return LaneWorld(plan,
                   [&](const auto& ranks, auto now) {
                     return now && random.below(8) < stays ? *now : ranks[random.below(ranks.size())];
                   })
      .run();
}

}  // namespace

TEST_CASE("the words of a lane decide alike in every order of two interruptions") {
  size_t orders = 0;
  for (const LaneWorld::Plan& plan : lane_programs()) CHECK(wrong_in_some_order(plan, 2, orders) == "");
  CHECK(orders > 3000);
}

TEST_CASE("the words of a lane decide alike whoever dies, at each access") {
  size_t orders = 0;
  for (LaneWorld::Plan plan : lane_programs())
    for (plan.dies = 0; *plan.dies < 2; ++*plan.dies)
      for (plan.at_access = 0; plan.at_access < 40; ++plan.at_access)
        CHECK(wrong_in_some_order(plan, plan.at_access < 16 ? 1 : 0, orders) == "");
}

TEST_CASE("the words of a lane decide alike in random orders of two and three ranks") {
  Generator random(11);
  for (int i = 0; i < 800; ++i) {
    LaneWorld::Plan plan = random_lane_plan(random);
    if (!random.below(3)) plan.dies = random.below(plan.calls.size()), plan.at_access = random.below(60);
    CAPTURE(i);
    REQUIRE(wrong_at_random(plan, random) == "");
  }
}

TEST_CASE("without any one of its rules a lane goes wrong in some order") {
  const std::vector<LaneWorld::Plan> programs = lane_programs();
  const std::vector<std::pair<LaneRule, size_t>> needed_by = {{LaneRule::room, 6},
                                                              {LaneRule::called_first, 3},
                                                              {LaneRule::look_again, 0},
                                                              {LaneRule::tell_of_decision, 0},
                                                              {LaneRule::tell_of_message, 2},
                                                              {LaneRule::done_last, 6},
                                                              {LaneRule::called_at_first, 7},
                                                              {LaneRule::failed_shows, 5}};
  REQUIRE(needed_by.size() == kLaneRules);
  for (const auto& [rule, program] : needed_by) {
    LaneWorld::Plan plan = programs[program];
    plan.without = rule;
    size_t orders = 0;
    const std::string wrong = wrong_in_some_order(plan, 2, orders);
    INFO("rule " << static_cast<int>(rule) << " in program " << program << ": " << orders << " orders");
    CHECK(wrong != "");
  }
}
