// A driver that forks: argument "uses", the child tries everything; "returns" or "throws", it goes on as its
// parent does; "before", it is forked before the cluster; "busy", many do while other threads call; "locked",
// one after the other finds a mutex taken for good, the first, the second, ...; "methods", those of actors
// fork; "never", nobody forks; "nothing", the program ends at once.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include "core/base/fork.h"
#include "core/base/log.h"
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

int ends_with(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
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

// Forks wherever code of an actor runs. Each gives how the child ended that came back from it.
struct Forker : Actor {
  Forker() : of_constructor(fork_here()) {}
  explicit Forker(RRef<Box> box) : Forker() { other = std::move(box); }
  static int64_t fork_here() {
    const pid_t child = fork();
    return child ? ends_with(child) : -1;
  }
  int64_t constructor() { return of_constructor; }
  int64_t returns() { return fork_here(); }
  int64_t blocks() { return fork_here(); }
  int64_t throws() {
    if (const int64_t end = fork_here(); end != -1) return end;
    throw std::runtime_error("the child's own");
  }
  void nothing() { of_tell = fork_here(); }
  int64_t told() { return of_tell; }
  Task<int64_t> begins() {
    const int64_t end = fork_here();
    (void)co_await other.call<&Box::add>(0);
    co_return end;
  }
  Task<int64_t> goes_on() {
    (void)co_await other.call<&Box::add>(0);
    co_return fork_here();
  }
  Task<int64_t> calls_back() {
    co_return co_await other.call<&Box::add>(0).then([](int64_t) { return fork_here(); });
  }
  int64_t of_constructor, of_tell = 0;
  RRef<Box> other;
  static constexpr auto remote =
      methods<&Forker::constructor, &Forker::returns, &Forker::throws, &Forker::nothing, &Forker::told,
              &Forker::begins, &Forker::goes_on, &Forker::calls_back, blocking<&Forker::blocks>>;
};

void forks_in_methods(Cluster& cluster, const RRef<Box>& box) {
  for (const std::string& where : cluster.workers()) {
    const auto forker = cluster.spawn<Forker>(where, box);
    const auto asks = [&](const char* what, const Future<int64_t>& answer) {
      try {
        say(where + " " + what + " " + std::to_string(answer.get()));
      } catch (const Error& e) {
        say(where + " " + what + " " + e.what());
      }
    };
    asks("constructor", forker.call<&Forker::constructor>());
    asks("returns", forker.call<&Forker::returns>());
    asks("throws", forker.call<&Forker::throws>());
    asks("blocks", forker.call<&Forker::blocks>());
    asks("begins", forker.call<&Forker::begins>());
    asks("goes_on", forker.call<&Forker::goes_on>());
    asks("calls_back", forker.call<&Forker::calls_back>());
    forker.tell<&Forker::nothing>();
    asks("tell", forker.call<&Forker::told>());
  }
}

// What a driver's thread does with what it has, and does not care to be a child.
void goes_on(Cluster& cluster, RRef<Box> box, Future<int64_t> pending) {
  const RRef<Box> copy = box;
  pending = {};
  Tensor w = ones({3});
  w.requires_grad_();
  autograd::backward((w * w).sum());
  internal::log::warning("a line of the child's");
  tries("call", [&] { box.call<&Box::add>(1).get(); });
  tries("step", [&] { autograd::Context context(cluster); });
}

// Other threads call all the time: each child is forked while they have some lock, or none.
void forks_while_busy(const RRef<Box>& box) {
  constexpr int kChildren = 200;
  std::atomic<bool> over{false};
  auto& callers =
      *new std::vector<std::thread>;  // a child's destructor would find threads that are not there
  for (int i = 0; i < 3; ++i)
    callers.emplace_back([&] {
      while (!over) (void)box.call<&Box::plus_one>(ones({16})).get();
    });
  int ended = 0;
  for (int i = 0; i < kChildren; ++i) {
    auto dropped = box.call<&Box::plus_one>(ones({16}));
    const pid_t child = fork();
    if (child == 0) return;  // its threads are not there, and its end is that of the driver
    ended += ends_with(child) == 1;
  }
  over = true;
  for (auto& t : callers) t.join();
  delete &callers;
  say("ended " + std::to_string(ended) + " of " + std::to_string(kChildren));
}

struct Locks {
  int64_t taken, held;  // so many were taken; that one stays held
};
Locks* locks = nullptr;  // of all processes

void forks_with_locks(Cluster& cluster, const RRef<Box>& box) {
  locks = static_cast<Locks*>(
      mmap(nullptr, sizeof *locks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  int64_t ended = 0;
  do {
    locks->taken = 0;
    const auto pending = box.call<&Box::add>(0);
    const pid_t child = fork();
    if (child == 0) {
      internal::taken_as_held = [] { return locks->taken++ == locks->held; };
      return goes_on(cluster, box, pending);
    }
    ended += ends_with(child) == 1;
  } while (locks->taken > locks->held++);
  say("locks " + std::to_string(locks->held) + ", ended " + std::to_string(ended));
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
  return launch(hosting<Box, Forker>(), [&](Cluster& cluster) {
    auto box = cluster.spawn<Box>("w1");
    box.call<&Box::add>(1).get();
    const auto pending = box.call<&Box::add>(1);
    Tensor own, came;
    if (mode == "uses") {
      own = ones({1 << 20});
      came = box.call<&Box::plus_one>(own).get();
    }
    if (mode == "busy") forks_while_busy(box);
    if (mode == "methods") forks_in_methods(cluster, box);
    if (mode == "locked") forks_with_locks(cluster, box);
    if (in_refused_child()) return;
    if (mode == "uses" || mode == "returns" || mode == "throws") {
      const pid_t child = fork();
      if (child == 0) {
        if (mode == "returns") return;
        if (mode == "throws") throw std::runtime_error("the child's own");
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
      say("the child's end " + std::to_string(ends_with(child)));
    }
    if (mode == "uses") {
      box.call<&Box::write>().get();
      say_sums("parent", own, came);
    }
    say("parent " + std::to_string(box.call<&Box::add>(pending.get()).get()));
  });
}
