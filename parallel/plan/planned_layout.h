// One way to cut a model, the workers that it is cut over, and what a step of it comes to.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "collective/mesh_points.h"
#include "parallel/measure/model_profile.h"
#include "parallel/pipeline/pipeline.h"

namespace troupe::parallel {

/// One way to cut a model over workers: what a layout file says (parallel/layout/layout.h).
struct PlannedLayout {
  int64_t dp = 1, pp = 1, ep = 1, cp = 1, tp = 1;
  int64_t chunks = 1;              ///< stages of each worker
  std::vector<size_t> cuts = {};   ///< layers before which stages begin: stages() - 1
  std::vector<int64_t> rows = {};  ///< of each replica in a step
  int64_t micro_batches = 1;
  std::string schedule = "1f1b";
  Checkpoint checkpoint = Checkpoint::never;
  Shard shard = Shard::none;
  Per gather = Per::use, reduce = Per::use;

  int64_t workers() const { return dp * pp * ranks(); }
  int64_t stages() const { return pp * chunks; }
  /// How they lie on the workers.
  MeshDim along_stages() const;
  int64_t ranks() const { return ep * cp * tp; }  ///< of a stage of one replica
  /// "dp 2, pp 2, 1f1b of 8, shard state, checkpoint always"
  std::string str() const;
};

/// The step of the slowest replica, and the most that a worker has. Seconds and bytes.
struct LayoutCost {
  double step = 0;       ///< the sum of the following
  double compute = 0;    ///< of the stage that has most to do, without what its ranks exchange
  double bubble = 0;     ///< in which that stage waits for others, and the driver for all
  double sums = 0;       ///< and exchanges of a stage's ranks, in the layers
  double gradients = 0;  ///< that replicas sum or gather behind the pass, where it lies under nothing
  double optimizer = 0;
  double memory = 0;  ///< the sum of the following
  double before = 0;  ///< that a worker had before the model came
  double parameters = 0, gradient_bytes = 0, state = 0, activations = 0;
  double sent = 0;    ///< in a step
  size_t worker = 0;  ///< that has most memory
};

/// The workers of a plan are those of a profile, or more of the same.
class PlannedWorkers {
 public:
  /// `count`: 0: those of the profile. `per_host`: of workers that the profile does not name; 0: as many as
  /// its first host has.
  PlannedWorkers(const ModelProfile& profile, int64_t count, int64_t per_host);
  size_t size() const { return speeds_.size(); }
  double speed(size_t worker) const { return speeds_[worker]; }
  double before(size_t worker) const { return before_[worker]; }
  size_t host(size_t worker) const { return hosts_[worker]; }
  /// The one whose processors it has: hosts that are network namespaces of one machine share them.
  size_t machine(size_t worker) const { return machines_[worker]; }
  /// Workers that were at work on a machine while layers were timed.
  double timed_together() const { return timed_together_; }
  const std::string& name(size_t worker) const& { return names_[worker]; }
  /// The workers of the host that has most.
  int64_t most_on_a_host() const { return most_; }
  /// The workers of the machine that has most.
  int64_t most_on_a_machine() const;

 private:
  std::vector<double> speeds_, before_;
  std::vector<size_t> hosts_, machines_;
  double timed_together_ = 1;
  std::vector<std::string> names_;
  int64_t most_ = 1;
};
/// The policy of its pipelines. Where rows are fewer than its rounds need, it is the beginning of a longer
/// one, as pipelines have it.
Policy policy_of(const PlannedLayout& layout);
/// Micro-batches that each stage keeps alive under a schedule of that name, without simulating it. Of one
/// chunk.
std::vector<int> live_of(const PlannedLayout& layout);

}  // namespace troupe::parallel
