// The leaves that a piece of code computes with, as far as it is recorded.
#pragma once
#include <unordered_set>
#include <utility>

#include "core/tensor/tensor.h"

namespace troupe {

/// While one is alive, it hears of every leaf that needs a gradient and is an input of a step that its thread
/// records. They may lie in each other: all hear.
class LeafUses {
 public:
  LeafUses() : outer_(std::exchange(current_, this)) {}
  ~LeafUses() { current_ = outer_; }
  LeafUses(const LeafUses&) = delete;
  LeafUses& operator=(const LeafUses&) = delete;

  /// Each once, in the order of their first uses.
  const Tensors& leaves() const { return leaves_; }

  static void note(const Tensor& leaf) {
    for (LeafUses* uses = current_; uses; uses = uses->outer_)
      if (uses->known_.insert(leaf.impl()).second) uses->leaves_.push_back(leaf);
  }

 private:
  static inline constinit thread_local LeafUses* current_ = nullptr;
  LeafUses* outer_;
  Tensors leaves_;
  std::unordered_set<const TensorImpl*> known_;
};

}  // namespace troupe
