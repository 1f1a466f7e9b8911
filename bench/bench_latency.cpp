// Where the time of a small call goes: beside a raw socket, now and then, under load; what it allocates and
// sends. `troupe run -n 2 bench_latency`; TROUPE_POLLING=0 and TROUPE_SHARED_MEMORY=0 switch off what makes
// it quick.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <latch>
#include <new>
#include <stop_token>
#include <thread>

#include "bench/measure.h"
#include "core/base/compiler.h"
#include "core/memory/streaming_copy.h"
#include "net/wire/wire.h"
#include "troupe/troupe.h"
using namespace troupe;

namespace {

std::atomic<int64_t> allocations{0};

}  // namespace

#if !TROUPE_ASAN && !TROUPE_TSAN  // which have their own, and count nothing
[[gnu::noinline]] void* operator new(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

namespace {

using Clock = std::chrono::steady_clock;

/// Of this process, user and system, in seconds.
double cpu_seconds() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

struct Peer : Actor {
  int64_t echo(int64_t x) { return x; }
  Tensor back(Tensor x) { return x; }
  int64_t take(Tensor x) { return x.numel(); }
  double cpu() { return cpu_seconds(); }
  int64_t allocated() { return allocations; }
  static constexpr auto remote = methods<&Peer::echo, &Peer::back, &Peer::take, &Peer::cpu, &Peer::allocated>;
};

struct Spread {
  double median, p99;
};
template <class Step>
Spread spread(int steps, Step&& step) {
  std::vector<double> times(static_cast<size_t>(steps));
  for (double& t : times) {
    const auto start = Clock::now();
    step();
    t = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times[times.size() * 99 / 100]};
}

/// A round trip of 64 bytes over a Unix socket with two sleeping waits, as a call has them: another process,
/// and the thread that asked.
double raw_ping_pong_us(const bench::Bench& bench) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
    throw_error(ErrorKind::failed, "[bench] no socket pair");
  char bytes[64] = {};
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    while (read(ends[1], bytes, sizeof bytes) > 0 && write(ends[1], bytes, sizeof bytes) > 0) continue;
    _exit(0);
  }
  close(ends[1]);
  const double us = bench.median_us(
      [&] {
        if (write(ends[0], bytes, sizeof bytes) > 0) (void)!read(ends[0], bytes, sizeof bytes);
      },
      2000, 100);
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return us;
}

void now_and_then(const bench::Bench& bench, const RRef<Peer>& peer) {
  const int calls = bench.count(1000);
  const double here = cpu_seconds(), there = peer.call<&Peer::cpu>().get();
  const auto start = Clock::now();
  auto next = start;
  std::vector<double> times;
  for (int i = 0; i < calls; ++i) {
    next += std::chrono::milliseconds(1);
    std::this_thread::sleep_until(next);
    const auto from = Clock::now();
    peer.call<&Peer::echo>(1).get();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - from).count());
  }
  const double wall = std::chrono::duration<double>(Clock::now() - start).count();
  const double mine = cpu_seconds() - here, theirs = peer.call<&Peer::cpu>().get() - there;
  // What it costs to wake once per millisecond and do nothing.
  const double before = cpu_seconds();
  next = Clock::now();
  for (int i = 0; i < calls; ++i) std::this_thread::sleep_until(next += std::chrono::milliseconds(1));
  const double alarm = cpu_seconds() - before;
  std::sort(times.begin(), times.end());
  bench.emit("rpc_echo_each_ms_us", times[times.size() / 2], "us",
             {{"cpu_percent_here", std::round(1e4 * mine / wall) / 100},
              {"cpu_percent_of_the_alarm_alone", std::round(1e4 * alarm / wall) / 100},
              {"cpu_percent_there", std::round(1e4 * theirs / wall) / 100}});
}

void idle(const bench::Bench& bench, const RRef<Peer>& peer) {
  const double here = cpu_seconds(), there = peer.call<&Peer::cpu>().get();
  std::this_thread::sleep_for(std::chrono::milliseconds(bench.count(2000)));
  const double mine = cpu_seconds() - here, theirs = peer.call<&Peer::cpu>().get() - there;
  bench.emit("idle_cpu_ms_per_s", 500 * std::max(mine, theirs), "ms");
}

void under_load(const bench::Bench& bench, const RRef<Peer>& peer) {
  const auto echo = [&] { peer.call<&Peer::echo>(1).get(); };
  const int echos = bench.count(100'000);
  const Spread quiet = spread(echos, echo);
  std::latch flowing(1);
  std::atomic<int> tensors{0};  // that went there and back
  std::jthread streaming([&](const std::stop_token& enough) {
    const Tensor x = ones({16 << 20});
    while (!enough.stop_requested()) {
      peer.call<&Peer::back>(x).get();
      if (tensors++ == 0) flowing.count_down();
    }
  });
  flowing.wait();
  const int before = tensors;
  const Spread loaded = spread(echos, echo);
  const int meanwhile = tensors - before;
  streaming.request_stop();
  streaming.join();
  bench.emit("rpc_echo_p99_us", quiet.p99, "us", {{"median", quiet.median}});
  bench.emit("rpc_echo_p99_under_load_us", loaded.p99, "us",
             {{"median", loaded.median}, {"tensors", static_cast<double>(meanwhile)}});
}

// A tensor on its way to the peer, beside the fastest copy into memory that two processes could share.
void transfers(const bench::Bench& bench, const RRef<Peer>& peer) {
  for (const int64_t kib : {1024, 16384, 65536}) {
    const size_t bytes = static_cast<size_t>(kib) << 10;
    const Tensor x = ones({kib * 256});
    const auto* from = reinterpret_cast<const std::byte*>(x.data<float>());
    const int steps = kib > 1024 ? 30 : 300;
    const double us = bench.median_us([&] { peer.call<&Peer::take>(x).get(); }, steps);
    void* shared = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) throw_error(ErrorKind::failed, "[bench] no shared memory");
    auto* to = static_cast<std::byte*>(shared);
    const double raw = std::min(bench.median_us([&] { std::memcpy(to, from, bytes); }, steps),
                                bench.median_us([&] { copy_large(to, from, bytes); }, steps));
    munmap(shared, bytes);
    bench.emit("rpc_transfer_us", us, "us",
               {{"kib", static_cast<double>(kib)}, {"raw_copy_us", raw}, {"of_raw", raw / us}});
  }
}

void costs(const bench::Bench& bench, const RRef<Peer>& peer) {
  constexpr int kCalls = 1000;
  for (int i = 0; i < kCalls; ++i) peer.call<&Peer::echo>(1).get();
  const int64_t here = allocations, there = peer.call<&Peer::allocated>().get();
  for (int i = 0; i < kCalls; ++i) peer.call<&Peer::echo>(1).get();
  const int64_t mine = allocations - here, theirs = peer.call<&Peer::allocated>().get() - there;
  bench.emit("rpc_echo_allocations", static_cast<double>(mine) / kCalls, "1",
             {{"there", static_cast<double>(theirs) / kCalls}});
  internal::net::Call call;
  call.id = 1, call.target = {1, 0, 1}, call.method = internal::net::method_id("echo"),
  call.timeout_us = 60'000'000;
  call.args.push_back(Value(int64_t{1}));
  internal::net::Reply reply;
  reply.id = 1, reply.result = Value(int64_t{1});
  constexpr double kPrefix = 16;
  bench.emit("rpc_echo_bytes",
             8.0 * static_cast<double>(internal::net::encode(call).header.size() +
                                       internal::net::encode(reply).header.size()) +
                 2 * kPrefix,
             "bytes");
}

}  // namespace

int main(int argc, char** argv) {
  bench::Bench bench("bench_latency", "Small calls between two workers; start it with troupe run -n 2.", argc,
                     argv);
  if (bench.exit_code) return *bench.exit_code;
  return launch(hosting<Peer>(), [&](Cluster& cluster) {
    const auto names = cluster.workers();
    if (names.size() < 2) throw_invalid("[bench] bench_latency needs 2 workers, got 1");
    if (!LaunchEnvironment::read()) bench.set_placement("in-process");
    const auto peer = cluster.spawn<Peer>(names[1]);
    bench.emit("raw_ping_pong_us", raw_ping_pong_us(bench), "us");
    bench.emit("rpc_echo_us", bench.median_us([&] { peer.call<&Peer::echo>(1).get(); }, 2000, 100), "us");
    now_and_then(bench, peer);
    idle(bench, peer);
    transfers(bench, peer);
    under_load(bench, peer);
    costs(bench, peer);
  });
}
