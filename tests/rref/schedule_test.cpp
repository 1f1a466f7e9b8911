// Random programs on a random network, in virtual time: actors make, pass on, fetch, name and forget
// references to values and to each other, while workers crash and links break. What is left in the end is
// nothing.
#include <catch2/catch.hpp>

#include "actors/worker/worker.h"
#include "core/base/generator.h"
#include "troupe/simulated/simulated_cluster.h"

using namespace troupe;
using namespace std::chrono_literals;

namespace {

constexpr size_t kWorkers = 4;

// A value that knows whose it should be: 1000 * worker + anything below 1000.
struct Item {
  Remote<int64_t> value;
  int64_t worker = 0;
};

struct Agent : Actor {
  explicit Agent(int64_t worker) : worker(worker) {}
  void meet(std::vector<RRef<Agent>> all) { others = std::move(all); }
  void take(std::vector<Item> more) { items.insert(items.end(), more.begin(), more.end()); }
  /// From message to message the value is one higher; every seventh cannot be computed.
  int64_t compute() {
    if (++computed % 7 == 0) throw std::runtime_error("the seventh");
    return 1000 * worker + computed % 1000;
  }
  void order(int64_t from) { items.push_back({others.at(size_t(from)).remote<&Agent::compute>(), from}); }
  /// Some of what it has, copied (or moved) to another agent, alone or several times in one message.
  void pass(int64_t to, int64_t which, bool keep) {
    if (items.empty()) return;
    const Item item = items[size_t(which) % items.size()];
    others.at(size_t(to)).tell<&Agent::take>(std::vector<Item>(size_t(1 + which % 3), item));
    if (!keep) forget(which);
  }
  void forget(int64_t which) {
    if (!items.empty()) items.erase(items.begin() + int64_t(size_t(which) % items.size()));
  }
  /// 1: the right value; 0: the error that it stands for; or the error of a lost worker.
  Task<int64_t> fetch(int64_t which) {
    if (items.empty()) co_return 1;
    const Item item = items[size_t(which) % items.size()];
    int64_t value = 0;
    bool seventh = false;
    try {
      value = co_await item.value.to_here();
    } catch (const Error& e) {
      seventh = e.message().find("the seventh") != std::string::npos;
      if (!seventh) throw;
    }
    if (seventh) co_return 0;
    if (value / 1000 != item.worker) throw std::runtime_error("another object's value");
    co_return 1;
  }
  Task<void> give_name(int64_t which, std::string name) {
    if (items.empty()) co_return;
    co_await here().set_name(items[size_t(which) % items.size()].value, name);
  }
  Task<void> find(std::string name, bool wait) {
    auto any = co_await here().lookup_any(name, {.wait = wait, .timeout = 20ms});
    items.push_back({any.as_remote<int64_t>(), any.owner()});
  }
  Task<void> drop(std::string name) { co_await here().drop_name(name); }
  void leave() { items.clear(), others.clear(); }

  int64_t worker, computed = 0;
  std::vector<RRef<Agent>> others;
  std::vector<Item> items;
  static constexpr auto remote =
      methods<&Agent::meet, &Agent::take, &Agent::compute, &Agent::order, &Agent::pass, &Agent::forget,
              &Agent::fetch, &Agent::give_name, &Agent::find, &Agent::drop, &Agent::leave>;
};

enum class Trouble { none, crash, broken_links };

struct Run {
  Run(uint64_t seed, Trouble trouble)
      : random(seed), trouble(trouble), cluster(seed, kWorkers, hosting<Agent>()) {
    cluster.network().set_faults({.delay = 10us, .jitter = 2ms});
    for (size_t w = 0; w < kWorkers; ++w) agents.push_back(cluster.here(0).spawn<Agent>(w, int64_t(w)));
    for (auto& a : agents) answers.push_back(done(a.call<&Agent::meet>(agents)));
    for (auto& a : answers) cluster.await(a).value();
    answers.clear();
    victim = 1 + random.below(kWorkers - 1);  // worker 0 drives
    if (trouble == Trouble::crash)
      cluster.network().schedule(Duration(random.below(40'000'000)),
                                 [this] { cluster.network().crash("w" + std::to_string(victim)); });
    if (trouble == Trouble::broken_links)
      for (size_t w = 1; w < kWorkers; ++w)
        if (w != victim)
          cluster.network().set_faults("w" + std::to_string(victim), "w" + std::to_string(w),
                                       {.delay = 10us, .jitter = 2ms, .drop = 0.05});
  }

  void play(int steps) {
    for (int i = 0; i < steps; ++i) {
      act();
      for (uint64_t k = random.below(4); k > 0; --k) cluster.step();
    }
    for (auto& a : answers) check(cluster.await(a));
    cluster.settle();  // what was passed on has arrived
    std::vector<Future<int64_t>> farewells;
    for (size_t w = 0; w < kWorkers; ++w) {
      for (const auto& name : names) farewells.push_back(done(agents[0].call<&Agent::drop>(on(w, name))));
      farewells.push_back(done(agents[w].call<&Agent::leave>()));
    }
    for (auto& f : farewells) (void)cluster.await(f);
    agents.clear();
    cluster.settle();
    for (size_t w = 0; w < kWorkers; ++w) {
      if (trouble == Trouble::crash && w == victim) continue;
      auto m = cluster.worker(w).metrics();
      INFO("worker " << w << ", victim " << victim);
      for (const char* counter : {"owned_objects", "owned_references", "owned_values", "borrowed_references",
                                  "pending_references", "pending_calls", "actors", "names"}) {
        INFO(counter);
        REQUIRE(m[counter] == 0);
      }
    }
  }

  void act() {
    auto& agent = agents[random.below(kWorkers)];
    const auto which = int64_t(random.below(1000)), other = int64_t(random.below(kWorkers));
    const std::string name = names[random.below(names.size())];
    switch (random.below(12)) {
      case 0:
      case 1:
      case 2:
        return say(agent.call<&Agent::order>(other));
      case 3:
      case 4:
      case 5:
        return say(agent.call<&Agent::pass>(other, which, random.below(2) == 0));
      case 6:
      case 7:
        return say(agent.call<&Agent::fetch>(which));
      case 8:
        return say(agent.call<&Agent::forget>(which));
      case 9:
        return say(agent.call<&Agent::give_name>(which, name));
      case 10:
        return say(agent.call<&Agent::find>(on(size_t(other), name), random.below(2) == 0));
      default:
        return say(agent.call<&Agent::drop>(on(size_t(other), name)));
    }
  }

  template <class T>
  static Future<int64_t> done(const Future<T>& f) {
    if constexpr (std::is_void_v<T>)
      return f.then([] { return int64_t{2}; });
    else
      return f;
  }
  template <class T>
  void say(const Future<T>& f) {
    answers.push_back(done(f));
  }
  static std::string on(size_t worker, const std::string& name) {
    return "w" + std::to_string(worker) + "/" + name;
  }

  // Errors are those of names, and where workers are lost those that say so.
  void check(const Result<int64_t>& r) {
    if (r.ok()) {
      ++(r.value() == 1 ? fetched : r.value() == 0 ? failed : other);
      return;
    }
    const std::string text = r.error().what();
    INFO(text);
    ++refused;
    if (text.find("[names]") != std::string::npos || text.find("lookup of w") != std::string::npos) return;
    REQUIRE(trouble != Trouble::none);
    const bool said = r.error().kind() == ErrorKind::disconnected ||
                      text.find("is gone") != std::string::npos ||
                      text.find("never made") != std::string::npos;
    REQUIRE(said);
  }

  Generator random;
  Trouble trouble;
  SimulatedCluster cluster;
  std::vector<RRef<Agent>> agents;
  std::vector<Future<int64_t>> answers;
  const std::vector<std::string> names{"a", "b"};
  size_t victim = 0;
  int64_t fetched = 0, failed = 0, refused = 0, other = 0;
};

}  // namespace

TEST_CASE("values and names in random programs over a network that reorders: all right, and nothing left") {
  int64_t fetched = 0, failed = 0, refused = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    INFO("seed " << seed);
    Run run(seed, Trouble::none);
    run.play(120);
    fetched += run.fetched, failed += run.failed, refused += run.refused;
  }
  CHECK(fetched > 1000);
  CHECK(failed > 50);
  CHECK(refused > 100);
}

TEST_CASE("values and names in random programs with a worker that crashes: the others keep nothing") {
  int64_t refused = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    INFO("seed " << seed);
    Run run(seed, Trouble::crash);
    run.play(120);
    refused += run.refused;
  }
  CHECK(refused > 1000);
}

TEST_CASE(
    "values and names in random programs over links that break: both ends forget each other's references") {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    INFO("seed " << seed);
    Run(seed, Trouble::broken_links).play(120);
  }
}
