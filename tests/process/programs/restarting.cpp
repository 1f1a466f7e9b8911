// A program that is killed at its first start, or does not come, and does well when it is started again.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "tools/flags/flags.h"
#include "troupe/troupe.h"
using namespace troupe;

struct Adder : Actor {
  int64_t add(int64_t a, int64_t b) { return a + b; }
  void get(int64_t signal) { kill(getpid(), static_cast<int>(signal)); }
  static constexpr auto remote = methods<&Adder::add, &Adder::get>;
};

// What the end of this program destroys, after the driver and the cluster.
struct Last {
  bool dies = false;
  ~Last() {
    if (dies) kill(getpid(), SIGKILL);
  }
};

int main(int argc, char** argv) {
  std::string mode;
  tools::Flags flags("restarting", "Goes wrong at its first start.");
  flags.add("--mode", mode, "what is killed, or does not come",
            {"worker", "silent", "driver", "thread", "absent", "absent-later", "after"});
  if (auto code = flags.parse(argc, argv)) return *code;
  const char *text = std::getenv("TROUPE_RESTART"), *rank = std::getenv("RANK");
  const int restart = text ? std::atoi(text) : 0;
  if (rank && std::atoi(rank) == 1 &&
      ((mode == "absent" && restart == 0) || (mode == "absent-later" && restart == 1)))
    return 0;
  static Last last;
  return launch(hosting<Adder>(), [&](Cluster& cluster) {
    auto adder = cluster.spawn<Adder>("w1");
    if (restart == 0 && mode == "driver") kill(getpid(), SIGKILL);
    if (restart == 0 && mode == "thread") std::thread([] { std::abort(); }).join();
    if (restart == 0 && (mode == "worker" || mode == "absent-later")) adder.call<&Adder::get>(SIGKILL).get();
    if (restart == 0 && mode == "silent") adder.call<&Adder::get>(SIGSTOP).get();
    std::printf("the sum is %d\n", static_cast<int>(adder.call<&Adder::add>(1, 2).get()));
    last.dies = mode == "after";
  });
}
