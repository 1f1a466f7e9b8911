// Loops that are asked for their end: by a Job's steps, by a StopSignal of their own, with a cluster or
// without.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "tools/program.h"
#include "troupe/troupe.h"
using namespace troupe;

namespace {

struct Slow : Actor {
  int64_t count(int64_t ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    return ++counted;
  }
  int64_t pid() { return getpid(); }
  int64_t counted = 0;
  Keep keep{"counted", counted};
  static constexpr auto remote = methods<&Slow::count, &Slow::pid>;
};

// Each step says that it began, and that it ended.
template <class F>
void loop(Job& job, int64_t steps, const F& count) {
  for (const int64_t step : job.steps(steps)) {
    std::printf("step %d begins\n", static_cast<int>(step));
    std::fflush(stdout);
    std::printf("counted %d%s\n", static_cast<int>(count()), job.stopping() ? ", the last one" : "");
    std::fflush(stdout);
  }
  std::printf("the loop is over\n");
}

}  // namespace

int main(int argc, char** argv) {
  tools::Flags flags("stopping", "Ends when it is asked to.");
  auto& mode = flags.text("--mode", "job", "whose loop", {"job", "own", "alone"});
  auto& ms = flags.whole("--ms", 100, "that a step takes", {0, 1e6});
  auto& steps = flags.whole("--steps", 1000, "of the loop", {1, 1e6});
  const Checkpoints& checkpoints = flags.checkpoints();
  if (auto code = flags.parse(argc, argv)) return *code;
  if (mode == "alone")
    return tools::run_main(flags, [&] {
      int64_t counted = 0;
      Keep keep("counted", counted);
      Job job(checkpoints);
      loop(job, steps, [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(ms));
        return ++counted;
      });
    });
  return launch(
      [&](Cluster& cluster) {
        const auto slow = cluster.spawn<Slow>("w1");
        std::printf("w1 has pid %d\n", static_cast<int>(slow.call<&Slow::pid>().get()));
        const auto count = [&] { return slow.call<&Slow::count>(ms).get(); };
        if (mode == "own") {
          for (StopSignal stop; !stop.received();) {
            std::printf("counted %d\n", static_cast<int>(count()));
            std::fflush(stdout);
          }
          std::printf("the loop is over\n");
        } else {
          Job job(cluster);
          loop(job, steps, count);
        }
      },
      {.checkpoints = checkpoints});
}
