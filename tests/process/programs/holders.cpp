// Three workers hold each other's objects, and two of them are killed, one after the other.
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "troupe/troupe.h"
using namespace troupe;

namespace {

struct Item : Actor {
  explicit Item(int64_t n) : n(n) {}
  int64_t get() { return n; }
  int64_t n;
  static constexpr auto remote = methods<&Item::get>;
};

struct Holder : Actor {
  void keep(std::vector<RRef<Item>> actors, std::vector<Remote<int64_t>> values) {
    items = std::move(actors), numbers = std::move(values);
  }
  Task<int64_t> sum() {
    int64_t n = 0;
    for (auto& i : std::vector(items)) n += co_await i.call<&Item::get>();
    for (auto& v : std::vector(numbers)) n += co_await v.to_here();
    co_return n;
  }
  int64_t pid() { return getpid(); }
  std::vector<RRef<Item>> items;
  std::vector<Remote<int64_t>> numbers;
  static constexpr auto remote = methods<&Holder::keep, &Holder::sum, &Holder::pid>;
};

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

template <class F>
void say_error(const std::string& what, F&& f) {
  try {
    f();
    say(what + " worked");
  } catch (const Error& e) {
    say(what + " failed: " + std::string(name(e.kind())) + ": " + e.message());
  }
}

void wait_for(Cluster& cluster, const std::string& worker, const char* counter, int64_t value) {
  while (cluster.metrics(worker)[counter] != value) std::this_thread::yield();
}

}  // namespace

int main() {
  return launch(hosting<Item, Holder>(), [](Cluster& cluster) {
    auto holder = cluster.spawn<Holder>("w2"), neighbour = cluster.spawn<Holder>("w1");
    auto shared = cluster.spawn_named<Item>("w1/shared", 1000);
    auto value = shared.remote<&Item::get>();
    {
      std::vector<RRef<Item>> items{shared};
      std::vector<Remote<int64_t>> values{value};
      for (int64_t i = 0; i < 100; ++i) {
        items.push_back(cluster.spawn<Item>("w1", i));
        values.push_back(items.back().remote<&Item::get>());
      }
      holder.call<&Holder::keep>(items, values).get();
    }
    say("sum " + std::to_string(holder.call<&Holder::sum>().get()));
    wait_for(cluster, "w1", "owned_references",
             2 * 100 + 2 * 2 + 1 + 1);  // the holder's, both's, a name's, neighbour
    const auto victim = static_cast<pid_t>(holder.call<&Holder::pid>().get()),
               next = static_cast<pid_t>(neighbour.call<&Holder::pid>().get());

    kill(victim, SIGKILL);  // a holder
    wait_for(cluster, "w1", "owned_references", 1 + 1 + 1 + 1);
    say("owned after a holder's end " + std::to_string(cluster.metrics("w1")["owned_objects"]));
    say("value " + std::to_string(value.to_here().get()));
    say("named " + std::to_string(cluster.lookup<Item>("w1/shared").get().call<&Item::get>().get()));

    kill(next, SIGKILL);  // the owner
    say_error("use", [&] { shared.with_timeout(Duration(0)).call<&Item::get>().get(); });
    say_error("fetch", [&] { value.to_here().get(); });
    say_error("lookup", [&] { cluster.lookup<Item>("w1/shared").get(); });
    say_error("creation", [&] { cluster.spawn<Item>("w1", 1).ready().get(); });
    say("text " + shared.str());
    holder = {}, neighbour = {}, shared = {}, value = {};
    wait_for(cluster, "w0", "borrowed_references", 0);
    say("done");
  });
}
