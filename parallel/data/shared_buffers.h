// The buffers of replicas, which all have those of the first.
#pragma once
#include <cstdint>
#include <vector>

#include "core/tensor/tensor.h"

namespace troupe::parallel {

/// Which of them are to be written when those of the first come: what has not changed since then is left
/// alone, since recorded steps may hold it. In the mailbox of one replica.
class SharedBuffers {
 public:
  SharedBuffers() = default;
  /// They are those of the first.
  explicit SharedBuffers(Tensors all);
  /// On one that is not the first: they may differ from those of the first.
  void differ() { numbers_.assign(numbers_.size(), -1); }
  const Tensors& all() const& { return all_; }
  Tensors all() && { return all_; }

  /// On the first: a number for each, another one if it was written since the numbers of before; int64.
  Tensor numbers();
  /// On the others: takes those of the first, with its numbers.
  void take(const Tensors& of_first, const Tensor& numbers);

 private:
  Tensors all_;
  std::vector<int64_t> numbers_;
  std::vector<uint32_t> versions_;  // of their elements here, when they had these numbers
};

}  // namespace troupe::parallel
