// Turns of several devices: every order of messages of small programs, random programs on 2 to 8 devices, and
// every rule left out.
#include <catch2/catch.hpp>

#include "core/base/generator.h"
#include "tests/collective/turns_world.h"
#include "tests/support/seeds.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;

namespace {

void check_every_order(TurnsWorld world, Mishaps mishaps) {
  world.mishaps = mishaps;
  TurnsSearch search;
  search.visit(world);
  INFO(search.states() << " states, " << search.ends << " ends\n" << search.fault);
  CHECK(search.fault.empty());
  CHECK(search.ends > 0);
}

TurnsWorld opposite_transfers(MakeTurns make = make_turns<Turns>) {
  TurnsWorld world(2, make);
  world.add_transfer(0, 1, 1);
  world.add_transfer(1, 0, 1);
  return world;
}

TurnsWorld circle(MakeTurns make = make_turns<Turns>) {
  TurnsWorld world(3, make);
  for (uint32_t i = 0; i < 3; ++i) world.add_transfer(i, (i + 1) % 3, 1);
  return world;
}

TurnsWorld overlapping_groups(MakeTurns make = make_turns<Turns>) {
  TurnsWorld world(3, make);
  world.add_collective(1, {0, 1}, 1);
  world.add_collective(2, {1, 2}, 1);
  return world;
}

TurnsWorld group_of_three(MakeTurns make = make_turns<Turns>) {
  TurnsWorld world(3, make);
  world.add_collective(1, {0, 1, 2}, 1);
  return world;
}

TurnsWorld different_operations(MakeTurns make = make_turns<Turns>) {
  TurnsWorld world(3, make);
  for (uint32_t i = 0; i < 3; ++i) {
    DeviceOperation o = TurnsWorld::collective(1, {0, 1, 2}, 1);
    if (i == 2) o.brings = "all_reduce sum float32 [500]";
    world.add_call(i, o);
  }
  world.call_all();
  return world;
}

// A program of transfers and collectives, run in one order; "" or what is wrong.
struct RandomProgram {
  explicit RandomProgram(uint64_t seed, MakeTurns make = make_turns<Turns>)
      : random(seed), world(static_cast<uint32_t>(2 + random.below(7)), make) {
    const uint32_t n = world.size();
    for (uint64_t i = 0; i < 30; ++i) {
      if (n == 2 || random.below(2)) {
        const uint32_t from = below(n);
        world.add_transfer(from, (from + 1 + below(n - 1)) % n, i);
      } else {
        std::vector<uint32_t> who;
        for (const int64_t w : random.permutation(n)) who.push_back(static_cast<uint32_t>(w));
        who.resize(2 + below(n - 1));
        world.add_collective(1 + i, who, 0);
      }
    }
  }
  std::string run() {
    for (auto all = world.steps(); !all.empty() && world.fault().empty(); all = world.steps()) {
      const auto bad = random.below(100) ? std::vector<TurnsWorld::Step>{} : world.mishap_steps();
      world.run(bad.empty() ? all[random.below(all.size())] : bad[random.below(bad.size())]);
      if (++steps > 100'000) return "it does not come to an end";
    }
    return world.fault();
  }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random.below(n)); }

  Generator random;
  TurnsWorld world;
  size_t steps = 0;
};

// The first fault of turns that leave out a rule, in programs that find each; "" if there is none.
std::string fault_without_rule() try {
  constexpr MakeTurns make = make_turns_with_switches;
  Generator random(1);
  TurnsWorld different = different_operations(make);
  different.settle(random);
  for (uint32_t i = 0; i < 3; ++i)
    if (different.dropped[i].size() != 1) return "an operation that differs is launched";
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    RandomProgram program(seed, make);
    if (seed > 10) program.world.mishaps = {1, 1, 2, 2, 2};
    if (const std::string fault = program.run(); !fault.empty()) return fault;
  }
  for (TurnsWorld (*program)(MakeTurns) : {opposite_transfers, overlapping_groups, group_of_three})
    for (const Mishaps& m :
         {Mishaps{.give_ups = 1}, Mishaps{.refusals = 1}, Mishaps{.deaths = 1}, Mishaps{.cuts = 1},
          Mishaps{.skips = 1}, Mishaps{.refusals = 2}, Mishaps{.deaths = 1, .refusals = 1}}) {
      TurnsWorld world = program(make);
      world.mishaps = m;
      TurnsSearch search;
      search.visit(world);
      if (!search.fault.empty()) return search.fault;
    }
  return "";
} catch (const std::exception& e) {
  return e.what();
}

}  // namespace

TEST_CASE("turns: every order of two transfers against each other") {
  check_every_order(opposite_transfers(), {});
  check_every_order(opposite_transfers(), {.deaths = 1, .give_ups = 1});
  check_every_order(opposite_transfers(), {.cuts = 1, .refusals = 1});
}

TEST_CASE("turns: every order of a circle of three transfers") {
  check_every_order(circle(), {});
  check_every_order(circle(), {.deaths = 1});
}

TEST_CASE("turns: every order of two groups that have a device in common") {
  check_every_order(overlapping_groups(), {.deaths = 1});
  check_every_order(overlapping_groups(), {.cuts = 1});
  check_every_order(overlapping_groups(), {.give_ups = 1, .refusals = 1});
  check_every_order(overlapping_groups(), {.skips = 2});
  TurnsWorld world = overlapping_groups();
  world.add_transfer(2, 0, 1);
  check_every_order(world, {});
}

TEST_CASE("turns: every order of collectives of one group of three") {
  check_every_order(group_of_three(), {.deaths = 2});
  check_every_order(group_of_three(), {.cuts = 2});
  check_every_order(group_of_three(), {.deaths = 1, .cuts = 1});
  check_every_order(group_of_three(), {.deaths = 1, .give_ups = 1});
  check_every_order(group_of_three(), {.give_ups = 1, .refusals = 1});
  check_every_order(group_of_three(), {.deaths = 1, .skips = 1});
  check_every_order(group_of_three(), {.cuts = 1, .skips = 1});
  TurnsWorld world = group_of_three();
  world.add_collective(1, {0, 1, 2}, 2);
  check_every_order(world, {});
}

TEST_CASE("turns: random programs on 2 to 8 devices launch all that they call") {
  size_t messages = 0, members = 0;
  for (uint64_t seed = 1; seed <= seeds(200); ++seed) {
    RandomProgram program(seed);
    INFO("seed " << seed);
    REQUIRE(program.run() == "");
    for (uint32_t i = 0; i < program.world.size(); ++i) {
      REQUIRE(program.world.dropped[i].empty());
      members += program.world.launched[i].size();
    }
    messages += program.world.sent;
  }
  // Of a transfer two; of a group of n 4 (n - 1).
  CHECK(messages < 4 * members);
}

TEST_CASE(
    "turns: random programs on 2 to 8 devices that die, lose each other, give up, have no memory or "
    "never call") {
  size_t launched = 0, dropped = 0;
  for (uint64_t seed = 1; seed <= seeds(200); ++seed) {
    RandomProgram program(1'000'000 + seed);
    program.world.mishaps = {.deaths = static_cast<int>(seed % 3),
                             .cuts = static_cast<int>(seed / 3 % 2),
                             .give_ups = static_cast<int>(seed % 4),
                             .refusals = static_cast<int>(seed % 5),
                             .skips = static_cast<int>(seed / 5 % 3)};
    INFO("seed " << seed);
    REQUIRE(program.run() == "");
    for (uint32_t i = 0; i < program.world.size(); ++i) {
      launched += program.world.launched[i].size();
      dropped += program.world.dropped[i].size();
    }
  }
  CHECK(launched > 0);
  CHECK(dropped > 0);
}

TEST_CASE("turns: every rule that is left out is found") {
  CHECK(fault_without_rule() == "");
  for (size_t rule = 0; rule < kTurnsRules.size(); ++rule) {
    INFO(kTurnsRules[rule]);
    leave_out(rule);
    const std::string fault = fault_without_rule();
    leave_out(SIZE_MAX);
    CHECK(fault != "");
  }
}

TEST_CASE("turns: devices that bring different operations are told what, and by whom") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    TurnsWorld world = different_operations();
    Generator random(seed);
    world.settle(random);
    CHECK(world.fault() == "");
    for (uint32_t i = 0; i < 3; ++i) {
      REQUIRE(world.dropped[i].size() == 1);
      const Error& why = world.dropped[i].begin()->second;
      CHECK(why.kind() == ErrorKind::invalid);
      CHECK_THAT(why.message(), Contains("[1000]") && Contains("w2 cuda:0 all_reduce sum float32 [500]"));
      CHECK_FALSE(world.turns(i).open());
    }
  }
}

TEST_CASE("turns: devices that differ in who takes part are all told") {
  TurnsWorld world(3);
  world.add_call(0, TurnsWorld::collective(1, {0, 1}, 1));
  world.add_call(1, TurnsWorld::collective(1, {0, 1, 2}, 1));
  world.add_call(2, TurnsWorld::collective(1, {0, 1, 2}, 1));
  world.call_all();
  Generator random(1);
  world.settle(random);
  CHECK(world.fault() == "");
  for (uint32_t i = 0; i < 3; ++i)
    CHECK_THAT(world.dropped[i].at({1, 1}).message(),
               Contains("among 2 devices") && Contains("among 3 devices"));
}

TEST_CASE("turns: one that cannot take part, gives up or is lost ends the operation with its reason") {
  const DeviceOperation o = TurnsWorld::collective(1, {0, 1, 2}, 1);
  Generator random(1);
  TurnsWorld world(3);
  for (const uint32_t i : {1u, 0u}) world.begin(i, o, false);
  world.settle(random);
  CHECK(world.launched[0].empty());
  SECTION("it has no memory") {
    world.begin(2, o, false, true);
    world.settle(random);
    for (uint32_t i = 0; i < 3; ++i) CHECK(world.dropped[i].at(o.id).message() == "memory is out");
  }
  SECTION("the deadline of another one, and it comes too late") {
    world.mishaps.give_ups = 1;
    world.run({TurnsWorld::Step::give_up, 1, 0, o.id});
    world.settle(random);
    world.begin(2, o, false);
    world.settle(random);
    for (uint32_t i = 0; i < 3; ++i) CHECK(world.dropped[i].at(o.id).kind() == ErrorKind::deadline);
  }
  SECTION("it dies") {
    world.mishaps.deaths = 1;
    world.run({TurnsWorld::Step::die, 2});
    world.settle(random);
    for (uint32_t i = 0; i < 2; ++i) {
      CHECK(world.dropped[i].at(o.id).message() ==
            "[nccl] all_reduce sum float32 [1000]: w2 cuda:0 was lost: the connection ended");
      CHECK(world.dropped[i].at(o.id).worker() == "w2");
    }
  }
  CHECK(world.fault() == "");
}

TEST_CASE("turns: nothing is kept of a transfer whose sender dies before it has told the receiver of it") {
  const DeviceOperation o{.id = {1, 1},
                          .leader = {1, 0},
                          .members = {{0, 0}, {1, 0}},
                          .brings = "transfer float32 [1000]",
                          .called_by_all = true};
  const bool was_refused = GENERATE(false, true), comes_late = GENERATE(false, true);
  CAPTURE(was_refused, comes_late);
  Turns receiver({1, 0});
  Turns::Out out;
  if (was_refused)
    receiver.receive(
        {0, 0},
        {.kind = TurnMessage::give_up, .operation = o, .error = Error(ErrorKind::failed, "memory is out")},
        out);
  else
    receiver.receive({0, 0}, {.kind = TurnMessage::ready, .operation = o, .time = 1}, out);
  CHECK_FALSE(out.refused);
  CHECK(receiver.open() > 0);
  receiver.lost(0, Error(ErrorKind::disconnected, "the connection ended"), out);
  CHECK(receiver.open() == 0);
  if (!comes_late) return;
  receiver.ready(o, false, out = {});
  REQUIRE(out.dropped.size() == 1);
  CHECK(out.dropped[0].error.worker() == "w0");
  CHECK(receiver.open() == 0);
}

TEST_CASE("turns: an operation that fails after its turn fails on all its devices") {
  const DeviceOperation o = TurnsWorld::collective(1, {0, 1}, 1);
  Turns a({0, 0}), b({1, 0});
  Turns::Out out;
  const auto deliver = [&](Turns& to, WorkerDevice from) {
    const auto messages = std::exchange(out, {}).messages;
    for (const auto& [there, m] : messages) to.receive(from, m, out);
    CHECK_FALSE(out.refused);
  };
  a.ready(o, false, out);
  b.ready(o, false, out);
  deliver(a, {1, 0});  // ready
  deliver(b, {0, 0});  // ask
  deliver(a, {1, 0});  // propose
  CHECK(out.launches.size() == 1);
  deliver(b, {0, 0});  // turn
  CHECK(out.launches.size() == 1);
  out = {};
  a.failed(o.id, Error(ErrorKind::failed, "the card has gone"), out);
  REQUIRE(out.dropped.size() == 1);
  CHECK(out.dropped[0].launched);
  deliver(b, {0, 0});
  REQUIRE(out.dropped.size() == 1);
  CHECK(out.dropped[0].launched);
  CHECK(out.dropped[0].error.message() == "the card has gone");
  CHECK(out.messages.empty());
  CHECK(a.open() + b.open() == 0);
  a.give_up(o.id, Error(ErrorKind::cancelled, "too late"), out = {});
  CHECK(out.dropped.empty());
}

TEST_CASE("turns: what no honest member sends is refused, and changes nothing") {
  const DeviceOperation led = TurnsWorld::collective(1, {0, 1, 2}, 1),
                        other = TurnsWorld::collective(2, {1, 0}, 1);
  Turns turns({0, 0});
  Turns::Out out;
  turns.ready(led, false, out);
  turns.ready(other, true, out);
  turns.receive({1, 0}, {.kind = TurnMessage::ready, .operation = led}, out);
  const auto refused = [&](WorkerDevice from, const TurnMessage& m) {
    const std::string before = turns.state();
    Turns::Out o;
    turns.receive(from, m, o);
    CHECK(turns.state() == before);
    CHECK(o.messages.empty());
    return o.refused ? o.refused->message() : "";
  };
  const Error why(ErrorKind::failed, "no reason");
  const auto about = [](const DeviceOperation& o) { return DeviceOperation{.id = o.id}; };
  CHECK(refused({1, 0}, {.kind = TurnMessage::ready, .operation = led}) ==
        "[nccl] w1 cuda:0 sent a ready twice");
  CHECK_THAT(refused({3, 0}, {.kind = TurnMessage::ready, .operation = led}),
             Contains("of which it is no member"));
  CHECK_THAT(refused({1, 0}, {.kind = TurnMessage::ready, .operation = other}), Contains("does not lead"));
  CHECK_THAT(refused({1, 0}, {.kind = TurnMessage::give_up, .operation = led}), Contains("an error"));
  CHECK_THAT(refused({1, 0}, {.kind = TurnMessage::propose, .operation = about(led), .time = 5}),
             Contains("without having been asked"));
  CHECK_THAT(refused({2, 0}, {.kind = TurnMessage::turn, .operation = about(other), .time = 5}),
             Contains("does not lead"));
  CHECK_THAT(refused({1, 0}, {.kind = TurnMessage::ask, .operation = about(other)}), Contains("twice"));
  CHECK_THAT(refused({1, 0}, {.kind = TurnMessage::turn, .operation = about(other), .time = 0}),
             Contains("out of order"));
  CHECK_THAT(refused({1, 0}, {.kind = TurnMessage::turn, .operation = about(other), .time = UINT64_MAX}),
             Contains("a time that is none"));
  CHECK_THAT(refused({2, 0}, {.kind = TurnMessage::failed, .operation = about(other), .error = why}),
             Contains("no member"));
  CHECK_THAT(refused({1, 0}, {.kind = TurnMessage::failed, .operation = about(led), .error = why}),
             Contains("before its turn"));
  CHECK_THAT(refused({1, 0}, {.kind = static_cast<TurnMessage::Kind>(9), .operation = about(led)}),
             Contains("of a kind that there is not"));
  CHECK_THROWS_WITH(turns.ready(led, false, out), Contains("is called once"));
  CHECK_THROWS_WITH(turns.ready(TurnsWorld::collective(3, {1, 2}, 1), false, out), Contains("this one"));
  CHECK_THROWS_WITH(turns.refuse(TurnsWorld::collective(3, {0, 0}, 1), why, out),
                    Contains("different devices"));
}
