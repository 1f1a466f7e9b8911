// What an operation of a group tells those who record it, so that gradients go back through it.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collective/reduction.h"
#include "collective/rows.h"
#include "collective/schedule/problem.h"
#include "core/tensor/tensor.h"

namespace troupe::internal::collective {

/// An operation, as one of its ranks calls it.
struct CalledOperation {
  Collective collective = Collective::barrier;
  ReduceOp op = ReduceOp::sum;
  size_t root = 0;
  uint64_t group = 0;  ///< its number
  std::string tag = {};
  Standing at;
  std::vector<WorkerId> workers;   ///< of the ranks
  std::vector<int64_t> rows = {};  ///< that the caller gave
};

/// An operation that is recorded, until it is over. Its members are called one after the other.
class RecordedOperation {
 public:
  virtual ~RecordedOperation() = default;
  /// The rank has called it, as the one of this number among those of its tag. Before any rank can be done.
  virtual void called(uint64_t use) = 0;
  /// How many rows each rank has of what gather and all_gather give. Before gave().
  virtual void know(std::vector<int64_t> rows) = 0;
  /// The results, with their history.
  virtual Tensors gave(const Tensors& results) = 0;
  /// There are none.
  virtual void failed() = 0;
};

/// It records those of a worker. Thread-safe.
class OperationRecorder {
 public:
  virtual ~OperationRecorder() = default;
  /// Null: the thread's frame and grad mode say that nothing is recorded. `brings` lose their history. Throws
  /// `invalid` if a gradient has nowhere to go.
  virtual std::shared_ptr<RecordedOperation> record(CalledOperation called, Tensors& brings) = 0;
};

}  // namespace troupe::internal::collective
