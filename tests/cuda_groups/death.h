// The end of a worker whose GPU works together with others'.
#pragma once
#include <algorithm>

#include "actors/worker/worker.h"
#include "collective/engine.h"
#include "tests/support/eventually.h"
#include "tests/support/sim_cuda/nccl_sim.h"
#include "troupe/cluster.h"

namespace troupe::testing {

/// What happens first when a worker ends: nobody's NCCL says so; the others hear of it before NCCL says so;
/// or NCCL says so while it seems to live still.
enum class Death : uint8_t { unnoticed, noticed_later, noticed_first };

/// The last worker of a cluster, which has the GPU of its number, ends after the next `events` of NCCL
/// (NcclCounters::events), or when `all_ready()`. It hears of nothing, so that it does not take the others
/// for lost.
template <class F>
void end_last_worker(Cluster& cluster, uint64_t events, Death how, F&& all_ready) {
  const auto workers = cluster.workers_here();
  const size_t last = workers.size() - 1;
  const auto now = sim_cuda::nccl_counters();
  sim_cuda::kill_gpu_at(now.events + events, static_cast<int>(last), how == Death::noticed_first);
  (void)eventually([&] { return sim_cuda::nccl_counters().deaths > now.deaths || all_ready(); });
  workers[last]->stop();
  internal::collective::GroupEngine::of(*workers[last]).devices().stop();
  workers[last]->disconnect();
  if (how == Death::noticed_later) sim_cuda::kill_gpu(static_cast<int>(last), true);
  for (size_t i = 0; i < last; ++i)
    workers[i]->lose(static_cast<WorkerId>(last), Error(ErrorKind::disconnected, "it was killed"));
}

/// Whether an operation with the last worker may end so.
inline bool is_of_death(const Error& e, Death how, const std::string& worker) {
  if (e.kind() == ErrorKind::disconnected) return e.worker() == worker;
  return how == Death::noticed_first && e.kind() == ErrorKind::failed &&
         e.message().find("remote error") != std::string::npos;
}

}  // namespace troupe::testing
