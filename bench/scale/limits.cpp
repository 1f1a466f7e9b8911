// What must stay below a number: a call within a worker, a context that nobody needs, system calls, and how
// long anybody looks for the next call.
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "bench/scale/clocks.h"
#include "bench/scale/parts.h"
#include "bench/scale/syscalls.h"
#include "core/base/log.h"

namespace troupe::bench {
namespace {

using std::chrono::milliseconds;

void within_a_worker(const Bench& bench, Cluster& cluster, const RRef<Peer>& peer) {
  const auto beside = cluster.spawn<Peer>(cluster.workers()[1]);
  if (!peer.call<&Peer::sends_in_place>(beside).get())
    throw_error(ErrorKind::failed, "[bench] a tensor was copied on its way between two actors of one worker");
  const auto repeat = [&](auto method) {
    std::vector<double> us;
    for (int i = 0; i < bench.count(21); ++i) us.push_back(method());
    return median(us);
  };
  const int64_t calls = bench.count(2000);
  bench.emit("scale_local_call_us", repeat([&] { return peer.call<&Peer::echoes_of>(beside, calls).get(); }),
             "us");
  bench.emit("scale_local_tensor_us",
             repeat([&] { return peer.call<&Peer::tensors_of>(beside, calls).get(); }), "us");
}

/// Calls without and within a context, in turn; of eight turns the one that others disturbed least.
template <class Call>
void context_overhead(const Bench& bench, Cluster& cluster, int tensor, Call&& call) {
  std::vector<double> without, within;
  for (int i = 0; i < bench.count(8); ++i) {
    without.push_back(bench.median_us(call, 100));
    autograd::Context context(cluster);
    within.push_back(bench.median_us(call, 100));
  }
  const double plain = quantile(without, 0);
  bench.emit("scale_context_overhead_percent", 100 * (quantile(within, 0) / plain - 1), "%",
             {{"tensor", tensor}, {"without_us", plain}});
}

/// System calls of both processes for one call, halved: one direction. `asleep`: everybody is, at each call.
void system_calls(const Bench& bench, const RRef<Peer>& peer) {
  peer.call<&Peer::allow_tracing>().get();
  (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  const auto there = static_cast<pid_t>(peer.call<&Peer::process>().get());
  for (int asleep : {0, 1}) {
    const SyscallCounter counter({getpid(), there});
    if (!counter.works()) {
      internal::log::warning(
          "[bench] system calls are not counted: ptrace is not allowed here, or somebody else traces");
      return;
    }
    const int calls = bench.count(asleep ? 200 : 2000);
    const auto of = [&](bool call) {
      const int64_t here_before = counter.count(0), there_before = counter.count(1);
      for (int i = 0; i < calls; ++i) {
        if (asleep) std::this_thread::sleep_for(milliseconds(2));
        if (call) peer.call<&Peer::echo>(1).get();
      }
      return std::pair(static_cast<double>(counter.count(0) - here_before) / calls,
                       static_cast<double>(counter.count(1) - there_before) / calls);
    };
    of(true);
    const auto all = of(true), pauses = of(false);
    const double here = all.first - pauses.first, beyond = all.second - pauses.second;
    bench.emit("scale_system_calls", (here + beyond) / 2, "1",
               {{"asleep", asleep}, {"here", here}, {"there", beyond}, {"unnoticed", counter.unnoticed()}});
  }
}

/// Processor time that each process takes after the last call of several.
void after_the_last_call(const Bench& bench, const RRef<Peer>& peer) {
  const CpuClock here(getpid()), there(peer.call<&Peer::process>().get());
  std::vector<double> mine, theirs;
  for (int i = 0; i < bench.count(50); ++i) {
    for (int k = 0; k < 50; ++k) peer.call<&Peer::echo>(1).get();
    const double before = here.microseconds(), beyond = there.microseconds();
    std::this_thread::sleep_for(milliseconds(10));
    mine.push_back(here.microseconds() - before), theirs.push_back(there.microseconds() - beyond);
  }
  bench.emit("scale_after_last_call_us", std::max(median(mine), median(theirs)), "us",
             {{"here", median(mine)}, {"there", median(theirs)}});
}

}  // namespace

void measure_limits(const Bench& bench, Cluster& cluster) {
  const auto peer = cluster.spawn<Peer>(cluster.workers()[1]);
  const Tensor x = ones({1024});
  within_a_worker(bench, cluster, peer);
  context_overhead(bench, cluster, 0, [&] { peer.call<&Peer::echo>(1).get(); });
  context_overhead(bench, cluster, 1, [&] { peer.call<&Peer::back>(x).get(); });
  after_the_last_call(bench, peer);
  system_calls(bench, peer);
}

}  // namespace troupe::bench
