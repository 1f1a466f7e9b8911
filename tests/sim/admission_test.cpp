// Workers that join and leave a running cluster, on networks that delay and reorder: who is heard of is
// known.
#include <catch2/catch.hpp>

#include <set>

#include "actors/cluster/join.h"
#include "actors/runtime/serial_runtime.h"
#include "core/base/generator.h"
#include "net/sim/network.h"
#include "troupe/cluster/cluster.h"

using namespace troupe;
using Catch::Contains;

namespace {

struct Resident {
  std::shared_ptr<internal::actors::SerialRuntime> runtime =
      std::make_shared<internal::actors::SerialRuntime>();
  std::unique_ptr<internal::actors::Worker> worker;
  std::unique_ptr<internal::actors::Coordinator> coordinator;
  std::unique_ptr<internal::actors::Joiner> joiner;
  std::unique_ptr<internal::net::Listener> listener;
  std::optional<Future<void>> joined;
  bool alive = true;
};

class Town {
 public:
  explicit Town(uint64_t seed) : network_(seed, true), random_(seed) {
    network_.set_faults({.jitter = std::chrono::milliseconds(5)});
    Resident& first = start();
    first.coordinator =
        std::make_unique<internal::actors::Coordinator>(*first.worker, member(first), 1, /*elastic=*/true);
    open(first);
    first.coordinator->wait(std::chrono::seconds(1));
  }
  ~Town() {
    for (auto& n : nodes_) n->worker->stop();
  }

  size_t size() const { return nodes_.size(); }
  Resident& node(size_t i) { return *nodes_[i]; }
  size_t pick(size_t n) { return static_cast<size_t>(random_.next() % n); }

  // A newcomer asks to be let in; `rank` is its own unless given.
  Resident& join(std::optional<WorkerId> rank = {}) {
    Resident& node = start(rank);
    node.joiner = std::make_unique<internal::actors::Joiner>(*node.worker);
    open(node);
    node.worker->members().add({0, "w0", "town", {"sim:n0"}});
    node.joined = node.joiner->announce(member(node), 1, std::chrono::seconds(60));
    return node;
  }
  void crash(Resident& node) {
    node.alive = false;
    network_.crash("n" + std::to_string(index(node)));
  }
  bool step() {
    for (auto& n : nodes_)
      if (n->alive) n->worker->tick();
    return network_.step();
  }
  // Whoever is listed anywhere knows, and is known to, all that are.
  bool all_known() {
    std::set<WorkerId> heard;
    for (auto& n : nodes_)
      if (n->alive)
        for (const auto& m : n->worker->members().all()) heard.insert(m.id);
    for (auto& n : nodes_)
      if (n->alive && heard.contains(n->worker->id()))
        for (const WorkerId id : heard)
          if (!n->worker->members().find(id)) return false;
    return true;
  }
  std::vector<std::string> listed(Resident& node) {
    std::vector<std::string> names;
    for (const auto& m : node.worker->members().all()) names.push_back(m.name);
    return names;
  }

 private:
  size_t index(const Resident& node) const {
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (nodes_[i].get() == &node) return i;
    return nodes_.size();
  }
  Resident& start(std::optional<WorkerId> rank = {}) {
    const WorkerId id = rank.value_or(static_cast<WorkerId>(nodes_.size()));
    auto node = std::make_unique<Resident>();
    node->worker = std::make_unique<internal::actors::Worker>(
        internal::actors::WorkerOptions{.id = id,
                                        .name = "w" + std::to_string(id),
                                        .host = "town",
                                        .runtime = node->runtime,
                                        .dispatch = internal::actors::Dispatch::caller,
                                        .clock = &network_.clock(),
                                        .timer_thread = false});
    nodes_.push_back(std::move(node));
    return *nodes_.back();
  }
  // Addresses differ where names do not.
  std::string address(const Resident& node) const {
    return index(node) == node.worker->id() ? "sim:n" + std::to_string(index(node)) : "sim:nowhere";
  }
  internal::actors::Member member(const Resident& node) const {
    return {node.worker->id(), node.worker->name(), "town", {address(node)}};
  }
  void open(Resident& node) {
    const std::string name = "n" + std::to_string(index(node));
    node.worker->set_transport(network_.make_transport(
        name, {.self = {node.worker->id(), node.worker->name()}, .token = "a token for towns, long enough"},
        *node.worker));
    node.listener = node.worker->transport().listen("sim:" + name);
  }
  internal::net::Network network_;
  Generator random_;
  std::vector<std::unique_ptr<Resident>> nodes_;
};

}  // namespace

TEST_CASE("workers join in any order of messages: nobody is heard of who is not known to all") {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Town town(seed);
    const size_t wanted = 3 + town.pick(4);
    bool known = true;
    while (town.size() < wanted || town.step()) {
      if (town.size() < wanted && town.pick(4) == 0)
        town.join();
      else
        town.step();
      known = known && town.all_known();
    }
    if (!known) FAIL("seed " << seed);
    for (size_t i = 0; i < town.size(); ++i) {
      if (town.node(i).joined && !town.node(i).joined->is_ready()) FAIL("seed " << seed << ": w" << i);
      if (town.listed(town.node(i)).size() != wanted) FAIL("seed " << seed << ": list of w" << i);
    }
  }
  SUCCEED();
}

TEST_CASE("workers that crash or leave while others join hold nobody up, and are no members in the end") {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Town town(seed);
    const size_t wanted = 4 + town.pick(4);
    size_t gone = 0;
    bool known = true;
    while (town.size() < wanted || town.step()) {
      if (town.size() < wanted && town.pick(4) == 0)
        town.join();
      else
        town.step();
      Resident& node = town.node(town.pick(town.size()));
      if (node.joiner && node.alive && gone < 2 && town.pick(12) == 0) {
        ++gone;
        if (town.pick(2) && node.joined->is_ready())
          node.joiner->leave(0).on_ready([&town, &node](const Result<void>& left) {
            if (left.ok() && node.alive) town.crash(node);
          });
        else
          town.crash(node);
      }
      known = known && town.all_known();
    }
    if (!known) FAIL("seed " << seed);
    std::vector<std::string> living;
    for (size_t i = 0; i < town.size(); ++i)
      if (town.node(i).alive) living.push_back("w" + std::to_string(i));
    if (town.listed(town.node(0)) != living) FAIL("seed " << seed << ": list of w0");
    for (size_t i = 0; i < town.size(); ++i) {
      Resident& node = town.node(i);
      if (node.alive && node.joined && !node.joined->is_ready()) FAIL("seed " << seed << ": w" << i);
    }
  }
  SUCCEED();
}

TEST_CASE("a cluster that ends lets in whoever it is letting in, and nobody after") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    INFO("seed " << seed);
    Town town(seed);
    Resident& early = town.join();
    for (uint64_t i = 0; i < seed; ++i) town.step();  // up to the end of its admission
    const Future<void> closed = town.node(0).coordinator->close();
    Resident& late = town.join();
    while (town.step()) {
    }
    CHECK(closed.is_ready());
    REQUIRE((early.joined->is_ready() && late.joined->is_ready()));
    REQUIRE_FALSE(late.joined->peek()->ok());
    CHECK(late.joined->peek()->error().kind() == ErrorKind::cancelled);
    CHECK_THAT(late.joined->peek()->error().what(), Contains("[cluster] is shutting down: w2 is not let in"));
    if (seed == 0) CHECK_FALSE(early.joined->peek()->ok());
    if (seed >= 10) CHECK(early.joined->peek()->ok());
    CHECK(town.listed(town.node(0)).size() == (early.joined->peek()->ok() ? 2 : 1));
  }
}

TEST_CASE("a number that has been used is refused, by name, and others join") {
  Town town(7);
  const auto settle = [&] {
    while (town.step()) {
    }
  };
  town.join();
  settle();
  Resident& again = town.join(1);
  settle();
  REQUIRE(again.joined->is_ready());
  CHECK_FALSE(again.joined->peek()->ok());
  town.crash(town.node(1));
  settle();
  Resident& successor = town.join(1);
  settle();
  REQUIRE_FALSE(successor.joined->peek()->ok());
  Resident& next = town.join();
  settle();
  if (!next.joined->peek()->ok()) FAIL(next.joined->peek()->error().what());
  CHECK(town.listed(town.node(0)) == std::vector<std::string>{"w0", "w4"});
}
