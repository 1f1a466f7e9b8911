// Cancels calls over processes, floods one with more than it may hold, and kills it while others wait for
// room.
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "actors/worker/worker.h"
#include "troupe/troupe.h"
using namespace troupe;

namespace {

constexpr int64_t kFloats = 1 << 18;  // 1 MiB
constexpr size_t kLimit = 8 << 20;

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

struct Hop : Actor {
  struct Inside {
    explicit Inside(int64_t& n) : n(n) { ++n; }
    ~Inside() { --n; }
    int64_t& n;
  };
  /// Along the others, and then for ever.
  Task<void> along(std::vector<RRef<Hop>> others) {
    Inside in(inside);
    if (others.empty()) co_await never.future();
    const RRef<Hop> next = others.front();
    others.erase(others.begin());
    co_await next.with_timeout(Duration(0)).call<&Hop::along>(others);
  }
  int64_t count() { return inside; }
  double mean(const Tensor& t) {
    double sum = 0;  // takes longer than it takes to send
    for (int i = 0; i < 10; ++i) sum += ops::mean(t).item();
    return sum / 10;
  }
  void stuck() {
    for (;;) pause();
  }
  int64_t pid() { return getpid(); }
  /// Highest resident memory so far, in MiB.
  int64_t peak() {
    std::ifstream in("/proc/self/status");
    for (std::string line; std::getline(in, line);)
      if (line.starts_with("VmHWM:")) return std::strtoll(line.c_str() + 6, nullptr, 10) >> 10;
    return -1;
  }
  int64_t inside = 0;
  Promise<void> never;
  static constexpr auto remote =
      methods<&Hop::along, &Hop::count, &Hop::mean, &Hop::stuck, &Hop::pid, &Hop::peak>;
};

void until(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) throw_error(ErrorKind::deadline, "nothing came of it");
    std::this_thread::yield();
  }
}

void cancels(RRef<Hop> a, RRef<Hop> b) {
  const auto inside = [&] { return a.call<&Hop::count>().get() + b.call<&Hop::count>().get(); };
  auto dropped = a.with_timeout(Duration(0)).call<&Hop::along>(std::vector{b, a, b});
  auto late = b.with_timeout(std::chrono::seconds(1)).call<&Hop::along>(std::vector{a});
  until([&] { return inside() >= (late.is_ready() ? 4 : 5); });  // on a loaded machine it has ended by then
  dropped = {};
  until([&] { return inside() == 0; });
  say(std::string("late ") + std::string(name(late.wait().error().kind())));
}

void floods(Cluster& cluster, RRef<Hop> a) {
  a.call<&Hop::mean>(zeros({kFloats})).get();
  const int64_t before = a.call<&Hop::peak>().get();
  std::vector<Future<double>> means;
  int64_t most = 0;
  for (int i = 0; i < 300; ++i) {
    means.push_back(a.call<&Hop::mean>(full({kFloats}, i, float32)));
    most = std::max(most, cluster.worker().metrics()["in_flight_bytes"]);
  }
  for (int i = 0; i < 300; ++i)
    if (means[static_cast<size_t>(i)].get() != i) throw_error(ErrorKind::failed, "a wrong mean");
  say("in flight " + std::to_string(most >> 20));
  say("grown " + std::to_string(a.call<&Hop::peak>().get() - before));
}

void loses(Cluster& cluster, RRef<Hop> a) {
  const auto pid = static_cast<pid_t>(a.call<&Hop::pid>().get());
  a.tell<&Hop::stuck>();
  std::string error;
  std::thread flood([&] {  // blocks for ever, but for the end of the worker
    for (;;) {
      const auto mean = a.call<&Hop::mean>(zeros({kFloats}));
      if (!mean.is_ready()) continue;
      error = mean.wait().ok() ? "no error" : mean.wait().error().what();
      return;
    }
  });
  until([&] { return cluster.worker().metrics()["in_flight_bytes"] >= static_cast<int64_t>(kLimit); });
  ::kill(pid, SIGKILL);
  flood.join();
  say("flood ended: " + error.substr(0, error.find('\n')));
  say("left " + std::to_string(cluster.worker().metrics()["in_flight_bytes"]));
}

}  // namespace

int main() {
  return launch(hosting<Hop>(),
                [](Cluster& cluster) {
                  auto a = cluster.spawn<Hop>("w1"), b = cluster.spawn<Hop>("w2");
                  cancels(a, b);
                  floods(cluster, a);
                  loses(cluster, a);
                },
                {.limits = {.bytes = kLimit}});
}
