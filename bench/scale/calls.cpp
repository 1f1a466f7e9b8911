// How the cost of a call grows: with callers, with calls in flight, with workers.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <thread>

#include "bench/scale/clocks.h"
#include "bench/scale/parts.h"

namespace troupe::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Served {
  double median_us, calls_per_s;
};

/// So many threads, each with one call at a time, for a while.
Served callers(const RRef<Peer>& peer, int threads, std::chrono::milliseconds time) {
  std::vector<std::vector<double>> waits(static_cast<size_t>(threads));
  std::latch begin(threads + 1);
  std::atomic<bool> enough{false};
  std::vector<std::jthread> all;
  for (auto& mine : waits)
    all.emplace_back([&] {
      mine.reserve(1 << 14);
      peer.call<&Peer::echo>(1).get();
      begin.arrive_and_wait();
      do {
        const auto start = Clock::now();
        peer.call<&Peer::echo>(1).get();
        mine.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
      } while (!enough.load(std::memory_order_relaxed));
    });
  begin.arrive_and_wait();
  const auto start = Clock::now();
  std::this_thread::sleep_for(time);
  enough = true;
  all.clear();
  const std::chrono::duration<double> took = Clock::now() - start;
  std::vector<double> waited;
  for (const auto& mine : waits) waited.insert(waited.end(), mine.begin(), mine.end());
  return {median(waited), static_cast<double>(waited.size()) / took.count()};
}

void connection_bytes(const Bench& bench, const std::vector<RRef<Peer>>& peers) {
  const auto& from = peers[1];
  const std::vector<RRef<Peer>> others(peers.begin() + 2, peers.end());
  const double before = from.call<&Peer::resident>().get();
  std::vector<size_t> counts;
  for (size_t n = 1; n < others.size(); n *= 2) counts.push_back(n);
  counts.push_back(others.size());
  const auto visit = [&](size_t n, int64_t calls) {
    from.call<&Peer::visit>(std::vector(others.begin(), others.begin() + static_cast<ptrdiff_t>(n)), calls)
        .get();
    return from.call<&Peer::resident>().get() - before;
  };
  std::vector<double> fresh, used;
  for (size_t n : counts) fresh.push_back(visit(n, 1));
  // 2 MiB each way: every page of both rings has been written.
  for (size_t n : counts) used.push_back(visit(n, bench.quick() ? 1 : 512));
  for (size_t i = 0; i < counts.size(); ++i)
    bench.emit("scale_connection_bytes", fresh[i], "B",
               {{"connections", static_cast<double>(counts[i])}, {"used", used[i]}});
}

/// Of all workers together, in percent of one core, while nothing is called.
double idle_percent(const Bench& bench, const std::vector<RRef<Peer>>& peers) {
  std::vector<CpuClock> clocks;
  for (const auto& peer : peers) clocks.emplace_back(peer.call<&Peer::process>().get());
  const auto all = [&] {
    double us = 0;
    for (const auto& clock : clocks) us += clock.microseconds();
    return us;
  };
  std::this_thread::sleep_for(std::chrono::milliseconds(bench.count(100)));
  const double before = all();
  const auto start = Clock::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(bench.count(1500)));
  const std::chrono::duration<double, std::micro> wall = Clock::now() - start;
  return 100 * (all() - before) / wall.count();
}

}  // namespace

void measure_callers(const Bench& bench, Cluster& cluster) {
  const auto peer = cluster.spawn<Peer>(cluster.workers()[1]);
  for (int n = 1; n <= 64; n *= 2) {
    std::vector<double> waits, rates;
    for (int i = 0; i < bench.count(3); ++i) {
      const Served served = callers(peer, n, std::chrono::milliseconds(bench.count(200)));
      waits.push_back(served.median_us), rates.push_back(served.calls_per_s);
    }
    bench.emit("scale_callers_us", median(waits), "us", {{"callers", n}, {"calls_per_s", median(rates)}});
  }
  for (int n : {1, 10, 100, 1000, 5000}) {
    std::vector<Future<int64_t>> sent(static_cast<size_t>(n));
    const auto batch = [&] {
      for (auto& call : sent) call = peer.call<&Peer::echo>(1);
      for (auto& call : sent) call.get();
    };
    bench.emit("scale_in_flight_us", bench.median_us(batch, std::clamp(20000 / n, 11, 1000), 2), "us",
               {{"in_flight", n}});
  }
}

void measure_workers(const Bench& bench, Cluster& cluster, bool connections) {
  std::vector<RRef<Peer>> peers;
  for (const auto& name : cluster.workers()) peers.push_back(cluster.spawn<Peer>(name));
  for (const auto& peer : peers) peer.ready().get();
  const auto n = static_cast<double>(peers.size());
  if (connections) connection_bytes(bench, peers);
  bench.emit("scale_idle_cpu_percent", idle_percent(bench, peers), "%", {{"workers", n}});
  const double one = bench.median_us([&] { peers[1].call<&Peer::echo>(1).get(); }, 2000, 100);
  size_t turn = 0;
  const auto next = [&] { return 1 + turn++ % (peers.size() - 1); };
  const double in_turn = bench.median_us([&] { peers[next()].call<&Peer::echo>(1).get(); }, 1000, 100);
  bench.emit("scale_workers_us", one, "us", {{"workers", n}, {"in_turn", in_turn}});
  // Each calls its neighbour, all at once.
  const int64_t each = std::max<int64_t>(bench.count(20000) / static_cast<int64_t>(n), 1);
  const auto round = [&] {
    std::vector<Future<double>> calling;
    for (size_t i = 0; i < peers.size(); ++i)
      calling.push_back(peers[i].call<&Peer::echoes_of>(peers[(i + 1) % peers.size()], each));
    for (auto& done : calling) done.get();
  };
  bench.emit("scale_workers_calls_per_s", 1e6 * n * static_cast<double>(each) / bench.median_us(round, 3, 1),
             "1/s", {{"workers", n}});
}

}  // namespace troupe::bench
