// Programs that end in different ways, as --mode says.
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "actors/worker/traffic_service.h"
#include "tools/flags/flags.h"
#include "troupe/troupe.h"
using namespace troupe;

struct Hopper : Actor {
  void meet(RRef<Hopper> other) { next = other; }
  // A hop that nobody waits for.
  void hop(int left) {
    std::printf("hop %d\n", left);
    std::fflush(stdout);
    if (left > 1) next.tell<&Hopper::hop>(left - 1);
  }
  int64_t pid() { return getpid(); }
  // On a thread that nobody else looks after.
  static void fail_on_thread() {
    std::thread([] { throw std::invalid_argument("the thread has had enough"); }).join();
  }
  void fails_on_thread() { fail_on_thread(); }
  void say_and_die() {
    std::printf("a line that nobody flushed\n");
    kill(getpid(), SIGKILL);
  }
  Task<void> never() { return wait(promise.future()); }
  static Task<void> wait(Future<void> future) { co_await future; }
  void spins() { promise.set(); }
  // Until the process ends; `next` is told, if there is one.
  void spin() {
    std::printf("spinning\n");
    std::fflush(stdout);
    if (next) next.tell<&Hopper::spins>();
    for (volatile bool go_on = true; go_on;) std::this_thread::yield();
  }
  RRef<Hopper> next;
  Promise<void> promise;
  static constexpr auto remote =
      methods<&Hopper::meet, &Hopper::hop, &Hopper::pid, &Hopper::never, &Hopper::say_and_die,
              &Hopper::spins, blocking<&Hopper::spin>, blocking<&Hopper::fails_on_thread>>;
};

struct Broken : Actor {
  Broken() { throw std::runtime_error("cannot be made"); }
  void use() {}
  static constexpr auto remote = methods<&Broken::use>;
};

int main(int argc, char** argv) {
  std::string mode = "chain";
  double timeout = 10;
  tools::Flags flags("endings", "Leaves work behind when its driver ends.");
  flags
      .add("--mode", mode, "what is left behind",
           {"chain", "never", "kill", "stop", "cycle", "say", "spin", "spin-and-fail", "thread",
            "thread-there", "thread-forgotten", "driver-spins", "tells", "unmade", "alone", "threads"})
      .add("--timeout", timeout, "seconds for the shutdown", {0.01, 100});
  if (auto code = flags.parse(argc, argv)) return *code;
  ClusterOptions options;
  options.shutdown_timeout = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(timeout));
  return launch(
      hosting<Hopper, Broken>(),
      [&](Cluster& cluster) {
        std::vector<RRef<Hopper>> all;
        if (mode == "threads") return (void)std::printf("threads %d\n", ops::num_threads());
        if (mode == "alone") return (void)std::printf("workers %zu\n", cluster.workers().size());
        if (mode == "driver-spins") Hopper().spin();
        if (mode == "unmade") return (void)cluster.spawn<Broken>("w1");
        for (const auto& name : cluster.workers()) all.push_back(cluster.spawn<Hopper>(name));
        for (size_t i = 0; i + 1 < all.size(); ++i) all[i].call<&Hopper::meet>(all[i + 1]).get();
        all.back().call<&Hopper::meet>(mode == "cycle" ? all[1] : all[0]).get();
        auto& last = all.back();
        static std::vector<Future<void>> kept;  // for good: a call whose future goes is given up
        if (mode == "chain") last.tell<&Hopper::hop>(20);
        if (mode == "say") all[1].call<&Hopper::say_and_die>().get();
        if (mode.starts_with("spin")) kept.push_back(last.with_timeout(Duration(0)).call<&Hopper::spin>());
        if (mode == "spin") kept.back().get();
        if (mode.starts_with("thread")) std::printf("a line before the end\n");
        if (mode == "thread") Hopper::fail_on_thread();
        if (mode == "thread-there") all[1].call<&Hopper::fails_on_thread>().get();
        if (mode == "thread-forgotten") std::thread([] {});
        if (mode == "spin-and-fail") all[0].call<&Hopper::never>().get();  // it ends: spin() has begun
        if (mode == "spin-and-fail") throw std::runtime_error("the driver has had enough");
        if (mode == "never" || mode == "kill" || mode == "stop") kept.push_back(last.call<&Hopper::never>());
        if (mode != "kill" && mode != "stop" && mode != "tells") return;
        const auto pid = static_cast<pid_t>(last.call<&Hopper::pid>().get());
        if (mode == "stop") return (void)kill(pid, SIGSTOP);
        if (mode == "tells") {
          kill(pid, SIGKILL);
          (void)last.call<&Hopper::pid>().wait();  // until its loss is known
          for (int i = 0; i < 50; ++i) last.tell<&Hopper::hop>(1);
          return;
        }
        // Once the shutdown asks what is under way.
        std::thread([&worker = cluster.worker(), pid] {
          for (;; std::this_thread::yield())
            for (const std::string& label : worker.pending_calls().labels())
              if (label == internal::actors::kTraffic.name) return (void)kill(pid, SIGKILL);
        }).detach();
      },
      options);
}
