// The protocol of checkpoints: every event in every state, and random sequences.
#include "troupe/job/committer.h"

#include <catch2/catch.hpp>
#include <map>

#include "core/base/error.h"
#include "core/base/generator.h"

using namespace troupe;
using internal::Committer;
using CommitEvent = Committer::Event;
using CommitState = Committer::State;
using CommitAction = Committer::Action;

namespace {

const std::vector<std::pair<CommitEvent, std::string>> kEvents{{CommitEvent::due, "due"},
                                                               {CommitEvent::loop_ends, "loop_ends"},
                                                               {CommitEvent::at_rest, "at_rest"},
                                                               {CommitEvent::not_at_rest, "not_at_rest"},
                                                               {CommitEvent::snapshots, "snapshots"},
                                                               {CommitEvent::refused, "refused"},
                                                               {CommitEvent::written, "written"},
                                                               {CommitEvent::not_written, "not_written"},
                                                               {CommitEvent::committed, "committed"},
                                                               {CommitEvent::worker_lost, "worker_lost"}};

std::string name_of(CommitState s) {
  return std::vector<std::string>{"idle", "settling", "snapshot", "writing", "index"}[static_cast<size_t>(s)];
}

std::string name_of(CommitAction a) {
  return std::vector<std::string>{"settle",  "take", "write", "index", "announce", "drop",
                                  "abandon", "miss", "skip",  "wait",  "fail"}[static_cast<size_t>(a)];
}

// One that has made a checkpoint, or none yet, in that state.
Committer brought_to(CommitState state, bool first) {
  using enum Committer::Event;
  Committer c;
  if (!first)
    for (const CommitEvent e : {due, at_rest, snapshots, written, committed}) c.on(e);
  for (const CommitEvent e : {due, at_rest, snapshots, written}) {
    if (c.state() == state) break;
    c.on(e);
  }
  REQUIRE(c.state() == state);
  return c;
}

std::string table(bool first) {
  std::string out;
  for (int s = 0; s < 5; ++s)
    for (const auto& [event, name] : kEvents) {
      Committer c = brought_to(static_cast<CommitState>(s), first);
      std::string actions;
      try {
        for (const CommitAction a : c.on(event)) actions += " " + name_of(a);
      } catch (const Error& e) {
        CHECK(e.kind() == ErrorKind::invalid);
        continue;
      }
      out += name_of(static_cast<CommitState>(s)) + " " + name + ":" + actions + " -> " + name_of(c.state()) +
             "\n";
    }
  return out;
}

}  // namespace

TEST_CASE("what a job does at every event in every state of a checkpoint") {
  const std::string always =
      "idle due: settle -> settling\n"
      "idle loop_ends: settle -> settling\n"
      "idle worker_lost: -> idle\n"
      "settling at_rest: take -> snapshot\n"
      "settling not_at_rest: miss MISS-> idle\n"
      "settling worker_lost: fail -> idle\n"
      "snapshot snapshots: write -> writing\n"
      "snapshot refused: drop miss MISS-> idle\n"
      "snapshot worker_lost: fail -> idle\n"
      "writing due: skip -> writing\n"
      "writing loop_ends: wait -> writing\n"
      "writing written: index -> index\n"
      "writing not_written: abandon miss MISS-> idle\n"
      "writing worker_lost: abandon miss -> idle\n"
      "index due: skip -> index\n"
      "index loop_ends: wait -> index\n"
      "index not_written: abandon miss MISS-> idle\n"
      "index committed: announce -> idle\n"
      "index worker_lost: abandon miss -> idle\n";
  const auto with = [&](const std::string& miss) {
    std::string out = always;
    for (size_t at; (at = out.find("MISS")) != std::string::npos;) out.replace(at, 4, miss);
    return out;
  };
  CHECK(table(true) == with("fail "));
  CHECK(table(false) == with(""));
}

TEST_CASE("the third checkpoint in a row that is not made is one too many") {
  using enum Committer::Event;
  Committer c = brought_to(CommitState::idle, false);
  for (int i = 1; i <= 3; ++i) {
    c.on(due);
    const auto actions = c.on(not_at_rest);
    CHECK(c.misses() == i);
    CHECK((actions.back() == CommitAction::fail) == (i == 3));
  }
  c = brought_to(CommitState::idle, false);
  for (int i = 0; i < 20; ++i) {  // every other one goes well
    c.on(due);
    CHECK(c.on(not_at_rest).back() == CommitAction::miss);
    for (const CommitEvent e : {due, at_rest, snapshots, written, committed}) c.on(e);
    CHECK(c.misses() == 0);
  }
}

TEST_CASE("a loop that ends while a checkpoint is written makes one more") {
  using enum Committer::Event;
  using Actions = Committer::Actions;
  for (const bool good : {true, false}) {
    Committer c = brought_to(CommitState::writing, false);
    CHECK(c.on(loop_ends) == Actions{CommitAction::wait});
    if (good) {
      c.on(written);
      CHECK(c.on(committed) == Actions{CommitAction::announce, CommitAction::settle});
    } else {
      CHECK(c.on(not_written) == Actions{CommitAction::abandon, CommitAction::miss, CommitAction::settle});
    }
    CHECK(c.on(at_rest) == Actions{CommitAction::take_snapshots});
    CHECK(c.on(snapshots) == Actions{CommitAction::write, CommitAction::wait});
    c.on(written);
    CHECK(c.on(committed) == Actions{CommitAction::announce});
    CHECK(c.state() == CommitState::idle);
  }
}

TEST_CASE("a loop does not end well if a worker is lost before its last step is saved") {
  using enum Committer::Event;
  using Actions = Committer::Actions;
  for (const bool index : {false, true}) {
    Committer last = brought_to(CommitState::idle, false);  // the last step's own
    for (const CommitEvent e : {loop_ends, at_rest, snapshots}) last.on(e);
    Committer before = brought_to(CommitState::writing, false);  // that of a step before it
    before.on(loop_ends);
    for (Committer* c : {&last, &before}) {
      if (index) c->on(written);
      CHECK(c->on(worker_lost) == Actions{CommitAction::abandon, CommitAction::fail});
      CHECK(c->state() == CommitState::idle);
    }
  }
}

TEST_CASE("a loop does not end well if its last step cannot be saved") {
  using enum Committer::Event;
  using Actions = Committer::Actions;
  const auto last = [](bool waited) {  // at rest
    Committer c = brought_to(waited ? CommitState::writing : CommitState::idle, false);
    c.on(loop_ends);
    if (waited) c.on(written), c.on(committed);
    return c;
  };
  for (const bool waited : {false, true}) {
    CHECK(last(waited).on(not_at_rest) == Actions{CommitAction::miss, CommitAction::fail});
    Committer refusing = last(waited), full = last(waited);
    refusing.on(at_rest);
    CHECK(refusing.on(refused) == Actions{CommitAction::drop, CommitAction::miss, CommitAction::fail});
    full.on(at_rest), full.on(snapshots);
    CHECK(full.on(not_written) == Actions{CommitAction::abandon, CommitAction::miss, CommitAction::fail});
    CHECK(full.state() == CommitState::idle);
  }
}

TEST_CASE("random events keep what is written and what is told apart") {
  for (uint64_t seed = 0; seed < 10'000; ++seed) {
    INFO("seed " << seed);
    Generator random(seed);
    Committer c;
    bool files = false, failed = false;  // begun and neither committed nor abandoned
    int64_t announced = 0;
    int misses = 0;
    for (int i = 0; i < 40 && !failed; ++i) {
      const CommitEvent event = kEvents[random.below(kEvents.size())].first;
      const CommitState before = c.state();
      Committer copy = c;
      Committer::Actions actions;
      try {
        actions = copy.on(event);
      } catch (const Error&) {
        CHECK(c.state() == before);
        continue;
      }
      c = copy;
      for (const CommitAction a : actions) switch (a) {
          case CommitAction::write:
            REQUIRE_FALSE(files);
            files = true;
            break;
          case CommitAction::write_index:
            REQUIRE(files);
            break;
          case CommitAction::announce:
            REQUIRE(files);
            files = false, ++announced, misses = 0;
            break;
          case CommitAction::abandon:
            REQUIRE(files);
            files = false;
            break;
          case CommitAction::miss:
            misses += event != CommitEvent::worker_lost;
            break;
          case CommitAction::fail:
            failed = true;
            break;
          default:
            break;
        }
      REQUIRE(files == (c.state() == CommitState::writing || c.state() == CommitState::index));
      REQUIRE(c.commits() == announced);
      REQUIRE(c.misses() == misses);
      if (failed) REQUIRE(c.state() == CommitState::idle);
      if (misses >= Committer::kMostMisses) REQUIRE(failed);
    }
  }
}
