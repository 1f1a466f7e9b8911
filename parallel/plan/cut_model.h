// A model as a layout cuts it: who has what of it, and what lies between them.
#pragma once
#include <vector>

#include "collective/mesh_points.h"
#include "collective/schedule/choice.h"
#include "parallel/pipeline/schedule/simulate.h"
#include "parallel/plan/planned_layout.h"

namespace troupe::internal::parallel {

using troupe::parallel::LayerCost;
using troupe::parallel::ModelProfile;
using troupe::parallel::PlannedLayout;
using troupe::parallel::PlannedWorkers;

/// Refers to its arguments. Points are numbered as a mesh of dp, pp, ep, cp and tp numbers them.
class CutModel {
 public:
  /// `invalid` for a layout that does not fit the layers or the workers.
  CutModel(const ModelProfile& profile, const PlannedWorkers& workers, const PlannedLayout& layout);
  const ModelProfile& profile() const& { return profile_; }
  const PlannedWorkers& workers() const& { return workers_; }
  const PlannedLayout& layout() const& { return layout_; }
  size_t stages() const { return static_cast<size_t>(layout_.stages()); }
  /// Workers of one replica and rank, each of which has a stage for each chunk.
  size_t columns() const { return static_cast<size_t>(layout_.pp); }
  size_t chunks() const { return along_.turns; }
  size_t stage(size_t column, size_t chunk) const { return coordinate_of(along_, column, chunk); }
  double replicas() const { return static_cast<double>(layout_.dp); }
  double micro_batches() const { return static_cast<double>(layout_.micro_batches); }

  size_t begin(size_t stage) const { return at_[stage]; }  ///< its first layer
  size_t end(size_t stage) const { return at_[stage + 1]; }
  const LayerCost& layer(size_t i) const& { return profile_.layers[i]; }
  size_t worker(int64_t replica, size_t stage, int64_t rank) const {
    const auto column = static_cast<int64_t>(member_at(along_, stage));
    return static_cast<size_t>((replica * layout_.pp + column) * layout_.ranks() + rank);
  }
  /// A rank has so many of a micro-batch, where a row that is cut counts by its part.
  double rows(int64_t replica) const;
  /// The rank that has most has such a part of a layer, of which `divided` is divided.
  double part(const LayerCost& layer, double divided) const;
  /// Bytes of parameters of one rank: of a layer, of those those that all ranks have alike but for "tp", of a
  /// stage.
  double parameters_of(const LayerCost& layer) const;
  double dense_parameters_of(const LayerCost& layer) const;
  /// Bytes of the largest parameter of a layer.
  double largest_of(const LayerCost& layer) const;
  double parameters(size_t stage) const;
  /// The slowest rank of a stage decides.
  double speed(int64_t replica, size_t stage) const;
  /// From stage to stage, of a micro-batch, on the slowest link.
  troupe::parallel::Hop hop(int64_t replica) const;

  /// Seconds of a sum of one layer's result over the ranks of "tp".
  double over_ranks(double bytes, int64_t replica, size_t stage) const;
  double over_replicas(collective::Collective c, double bytes, size_t stage) const;
  /// Seconds of what ranks of "cp" and "ep" exchange in a layer, in one direction.
  double exchanges(const LayerCost& layer, int64_t replica, size_t stage) const;
  /// Seconds of the sums of a layer's gradients over ranks that have the same parameters.
  double over_copies(const LayerCost& layer, int64_t replica, size_t stage) const;
  /// Seconds of a step in which the driver, on the first worker, and the farthest one wait for each other:
  /// for what the step gave, and for two answers of all, of its end and of the optimizer's step.
  double driver() const;
  /// Whether the replicas of a stage are on several hosts.
  bool between_hosts(size_t stage) const;

 private:
  collective::Setting setting(collective::Collective c, double bytes, size_t first, int64_t stride,
                              int64_t count) const;
  /// An operation of `count` workers from `first`, `stride` apart, as others of the same hosts do `at_once`.
  double seconds(collective::Collective c, double bytes, size_t first, int64_t stride, int64_t count,
                 int64_t at_once) const;

  const ModelProfile& profile_;
  const PlannedWorkers& workers_;
  const PlannedLayout& layout_;
  const troupe::parallel::LinkCost& link(size_t from, size_t to) const;
  const std::vector<size_t> at_;
  const MeshDim along_;  // the stages
};

}  // namespace troupe::internal::parallel
