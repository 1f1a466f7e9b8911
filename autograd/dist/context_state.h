// What one worker keeps for one distributed autograd context.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "actors/cell.h"
#include "autograd/dist/nodes.h"
#include "core/tensor.h"

namespace troupe::autograd {

/// Thread-safe.
class ContextState {
 public:
  /// Where a part of the graph begins, and whose it is.
  struct Send {
    Ref<SendNode> node;
    std::shared_ptr<actors::ActorCell> cell;  ///< null: recorded outside actors
  };

  void add_send(uint64_t pair, Send send);
  void drop_send(uint64_t pair);
  /// Empty node: unknown pair.
  Send find_send(uint64_t pair) const;

  /// Adds to the gradient of a leaf of this worker.
  void accumulate(const Tensor& leaf, const Tensor& grad);
  /// Undefined if none arrived.
  Tensor gradient(const Tensor& leaf) const;

  /// A worker that may have state of this context because of us.
  void add_peer(WorkerId id);
  std::vector<WorkerId> peers() const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, Send> sends_;
  std::unordered_map<const TensorImpl*, std::pair<Tensor, Tensor>> grads_;  // leaf (kept alive), gradient
  std::set<WorkerId> peers_;
};

}  // namespace troupe::autograd
