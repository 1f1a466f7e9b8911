// A driver that forks: argument "uses", the child tries everything; "returns", it goes on as its parent does;
// "before", it is forked before the cluster; "never", nobody forks; "nothing", the program ends at once.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "troupe/troupe.h"
using namespace troupe;

namespace {

struct Box : Actor {
  int64_t add(int64_t n) { return sum += n; }
  Tensor plus_one(Tensor x) { return kept = x + 1; }
  void write() { kept.fill_(7); }
  int64_t sum = 0;
  Tensor kept;
  static constexpr auto remote = methods<&Box::add, &Box::plus_one, &Box::write>;
};

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void tries(const char* what, const std::function<void()>& use) {
  try {
    use();
    say(std::string("child ") + what + ": went through");
  } catch (const Error& e) {
    say(std::string("child ") + what + ": " + std::string(name(e.kind())) + ": " + e.message());
  }
}

// Of 4 MiB each, which processes of a host share: one made here, one that came.
void say_sums(const std::string& who, const Tensor& own, const Tensor& came) {
  say(who + " has " + std::to_string(static_cast<int64_t>((own + came).sum().item())));
}

void uses(Cluster& cluster, RRef<Box> box, const Future<int64_t>& pending) {
  tries("spawn", [&] { (void)cluster.spawn<Box>("w1"); });
  tries("call", [&] { box.call<&Box::add>(1).get(); });
  tries("tell", [&] { box.tell<&Box::add>(1); });
  tries("remote", [&] { (void)box.remote<&Box::add>(1); });
  tries("get", [&] { pending.get(); });
  tries("context", [&] { autograd::Context context(cluster); });
  tries("cluster", [] { (void)Cluster::in_process(1, hosting<Box>()); });
  tries("shutdown", [&] { cluster.shutdown(); });
  say("child launch: " + std::to_string(launch(hosting<Box>(), [](Cluster&) {})));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "never";
  if (mode == "nothing") return 0;
  const bool first = !getenv("TROUPE_RANK") || std::string(getenv("TROUPE_RANK")) == "0";
  if (mode == "before" && first) {
    const pid_t child = fork();
    if (child == 0) {
      for (const char* variable : {"TROUPE_RANK", "TROUPE_WORLD_SIZE"}) unsetenv(variable);
      _exit(launch(hosting<Box>(), [](Cluster& cluster) {
        say("child " + std::to_string(cluster.spawn<Box>("w1").call<&Box::add>(3).get()));
      }));
    }
    waitpid(child, nullptr, 0);
  }
  return launch(hosting<Box>(), [&](Cluster& cluster) {
    auto box = cluster.spawn<Box>("w1");
    box.call<&Box::add>(1).get();
    const auto pending = box.call<&Box::add>(1);
    Tensor own, came;
    if (mode == "uses") {
      own = ones({1 << 20});
      came = box.call<&Box::plus_one>(own).get();
    }
    if (mode == "uses" || mode == "returns") {
      const pid_t child = fork();
      if (child == 0) {
        if (mode == "returns") return;
        {
          const RRef<Box> only_here = std::move(box);
          const Promise<int64_t> never;
          say_sums("child", own, came);
          own.fill_(5);
          say_sums("child", own, came);
          uses(cluster, only_here, never.future());
        }
        _exit(0);
      }
      int status = 0;
      waitpid(child, &status, 0);
      say("the child's end " + std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status)));
    }
    if (mode == "uses") {
      box.call<&Box::write>().get();
      say_sums("parent", own, came);
    }
    say("parent " + std::to_string(box.call<&Box::add>(pending.get()).get()));
  });
}
