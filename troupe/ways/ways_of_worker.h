// What a worker knows of the ways that tensors take from it to others.
#pragma once
#include <string>
#include <vector>

#include "actors/cell/extension.h"
#include "actors/runtime/job_queue.h"
#include "actors/worker/service.h"
#include "collective/nccl/device_operations.h"
#include "core/codec/plain_struct.h"
#include "troupe/ways/ways.h"

namespace troupe::internal {

/// A device of a worker, as it tells others.
struct DeviceEnd {
  std::string device;
  collective::DevicePlace place;
  std::string why;  ///< NCCL is not used there, if not empty
};
struct WorkerEnds {
  WorkerId worker = kNoWorker;
  std::vector<DeviceEnd> devices;
};
struct WaysFrom {
  bool settled = true;  ///< false: some connections are still being made
  std::vector<TensorWay> ways;
};

/// Driver to all workers: which devices beside the CPU have you? They load NCCL for it.
inline constexpr actors::Service<std::vector<DeviceEnd>()> kDevices{"ways.devices"};
/// Driver to all workers: which way do tensors take from you to these?
inline constexpr actors::Service<WaysFrom(std::vector<WorkerEnds> there)> kWaysFrom{"ways.from"};

/// Asks all workers. Cluster::ways().
Ways ways_of_all(actors::Worker& driver);

/// Thread-safe.
class WaysOfWorker final : public actors::Extension {
 public:
  explicit WaysOfWorker(actors::Worker& worker) : worker_(worker), jobs_(worker.runtime()) {}
  /// Part of every worker's set-up, behind groups.
  static void install(actors::Worker& worker);
  void stop() override { jobs_.finish(); }

 private:
  std::vector<DeviceEnd> devices() const;
  WaysFrom ways_to(const std::vector<WorkerEnds>& all) const;
  TensorWay way(const net::LinkState& link, const WorkerEnds& to, Device here) const;

  actors::Worker& worker_;
  actors::JobQueue jobs_;  // last: its jobs use the others. The library may take its time
};

}  // namespace troupe::internal
