// BatchNorm and InstanceNorm in a stage: running statistics move by the whole batch of a step, not by each
// micro-batch.
#pragma once
#include <utility>
#include <vector>

#include "actors/actor.h"
#include "nn/norm.h"

namespace troupe::parallel {

/// The layers of one actor, during a step. As Chiheon Kim and others, "torchgpipe" (2020), section 4.1,
/// deferred batch normalization. Does not own the layers: end() before the actor goes, or never.
class StageNorms {
 public:
  /// Those inside an nn::ModuleActor, from its first forward on; else nothing.
  void begin(Actor& actor);
  /// The running statistics move by what has passed; with keep false, they stay as they were before the step.
  void end(bool keep);
  /// While one is alive, passes are made again that were counted before.
  class Again {
   public:
    explicit Again(const StageNorms& norms);
    ~Again();
    Again(const Again&) = delete;

   private:
    const StageNorms& norms_;
  };

 private:
  void set(nn::Statistics what) const;
  std::vector<nn::RunningNorm*> layers_;
  bool begun_ = false;
};

}  // namespace troupe::parallel
