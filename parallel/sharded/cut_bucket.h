// Some tensors of which each member of a group has a range, and what travels between them and the whole.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "collective/group.h"
#include "core/tensor/tensor.h"
#include "parallel/sharded/bucket_cuts.h"

namespace troupe::parallel {

/// Elements [from, from + count) of a contiguous tensor: a view without history.
Tensor flat_range(const Tensor& t, int64_t from, int64_t count);

/// In methods of the members. Immutable.
class CutBucket {
 public:
  /// `counts`: elements of the tensors, which lie one behind the other.
  CutBucket(const Group& group, const std::vector<int64_t>& counts, TensorOptions options);
  const std::vector<BucketCuts::Part>& mine() const& { return cuts_.parts(rank_); }
  std::vector<BucketCuts::Part> mine() && { return cuts_.parts(rank_); }
  /// This member's elements.
  int64_t elements() const { return cuts_.elements()[rank_]; }

  /// The sums of the gradients of all members, for whom they belong to; undefined ones count as zeros, and a
  /// list that is too short ends with such. `group`: of these members. `options`: but for the rows.
  Future<Tensor> scatter(const Group& group, Tensors gradients, CollectiveOptions options) const;
  /// What came of that for this member: of which tensors some member had a gradient, by their numbers, and
  /// this member's part of the sum, a view.
  std::vector<std::pair<size_t, Tensor>> unpack(const Tensor& came) const;
  /// All elements, of what each member brings of its own.
  Future<Tensor> gather(const Group& group, const Tensor& mine, CollectiveOptions options) const;
  /// The same from whole tensors: what this member has of them.
  Tensor cut(const Tensors& wholes) const;
  /// What others have, into whole tensors, from gather().
  void put(const Tensor& all, const Tensors& wholes) const;

 private:
  Tensor pack(Tensors gradients) const;
  std::vector<int64_t> rows() const;
  const size_t rank_, ranks_;
  const size_t tensors_;
  const TensorOptions options_;
  const BucketCuts cuts_;
};

}  // namespace troupe::parallel
