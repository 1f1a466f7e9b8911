#include "troupe/cluster/seat.h"

#include <utility>

#include "actors/cluster/join.h"
#include "actors/worker/guests.h"
#include "net/protocol/standing.h"
#include "net/socket/socket_transport.h"
#include "troupe/cluster/worker_stack.h"
#include "troupe/watch/attachment.h"

namespace troupe::internal {

LaunchEnvironment take_seat(LaunchEnvironment job, Duration timeout) {
  // It asks as a guest, since a member has a number already.
  const WorkerId id = watch::new_guest();
  WorkerStack stack({.id = id,
                     .name = actors::guest_name(id),
                     .host = actors::host_identity(),
                     .runtime = actors::Runtime::make(1),
                     .timeout = timeout});
  net::SocketLimits limits;
  limits.ring_bytes = limits.arena_bytes = 0;
  stack.use_sockets(net::guest_pass(job.token, job.job), limits, "", job.encryption, job.certificate);
  actors::Worker& worker = stack.worker();
  actors::reach_driver(worker, job.address, "this newcomer", timeout);
  std::string terms;
  std::tie(job.rank, job.job, terms) = actors::kSeat.within(timeout).ask(worker, 0).get();
  stack.disconnect();
  job.elastic.reset();
  if (!terms.empty()) job.elastic = ElasticJob::parse(terms);
  job.world = job.rank + 1;
  return job;
}

}  // namespace troupe::internal
