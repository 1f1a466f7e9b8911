// Gradients of operations of groups: what ranks bring and get is recorded as if each had sent the others what
// they need in calls.
//
//   what p brings --> [brought] --> [Send p, q] ...the operation... [Receive q, p] --> [got] --> what q gets
//
// So a pass goes to exactly those ranks whose elements a loss depends on, whichever results are used, and
// whatever else these ranks do; no rank waits for one that has nothing to add.
#pragma once
#include "autograd/distributed/recorder.h"
#include "collective/recorded.h"

namespace troupe::autograd {

/// It records what ranks of a worker do. Thread-safe.
class GroupGradients final : public internal::collective::OperationRecorder {
 public:
  GroupGradients(internal::actors::Worker& worker, Contexts& contexts, Recorder& recorder)
      : worker_(worker), contexts_(contexts), recorder_(recorder) {}
  std::shared_ptr<internal::collective::RecordedOperation> record(
      internal::collective::CalledOperation called, Tensors& brings) override;

 private:
  internal::actors::Worker& worker_;
  Contexts& contexts_;
  Recorder& recorder_;
};

/// Marks numbers of pairs that ranks of groups know without having told each other.
inline constexpr uint64_t kPairOfGroup = uint64_t{1} << 62;

}  // namespace troupe::autograd
