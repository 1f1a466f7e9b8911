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

/// `invalid` unless this member has in `now` the rank that it has in `was`, among as many.
void check_same_rank(const Group& was, const Group& now);

/// In methods of the members. Immutable.
class CutBucket {
 public:
  /// `counts`: elements of the tensors, which lie one behind the other.
  CutBucket(const Group& group, const std::vector<int64_t>& counts, TensorOptions options);
  const std::vector<BucketCuts::Part>& mine() const& { return cuts_.parts(rank_); }
  std::vector<BucketCuts::Part> mine() && { return cuts_.parts(rank_); }
  /// Parts of the member before this one, in a ring.
  const std::vector<BucketCuts::Part>& theirs() const& { return cuts_.parts(before()); }
  std::vector<BucketCuts::Part> theirs() && { return cuts_.parts(before()); }
  /// This member's elements.
  int64_t elements() const { return cuts_.elements()[rank_]; }

  /// The sums of the gradients of all members, for whom they belong to; undefined ones count as zeros, and a
  /// list that is too short ends with such. `group`: of these members. `options`: but for the rows.
  Future<Tensor> scatter(const Group& group, Tensors gradients, CollectiveOptions options) const;
  /// This has the sums for the member before this one behind them, which that has sent.
  Future<Tensor> scatter_twice(const Group& group, Tensors gradients, CollectiveOptions options) const;
  /// What came of that for this member: of which tensors some member had a gradient, by their numbers, and
  /// this member's part of the sum, a view.
  std::vector<std::pair<size_t, Tensor>> unpack(const Tensor& came) const;
  /// This gives what is for the member before it, of scatter_twice().
  std::vector<std::pair<size_t, Tensor>> unpack_theirs(const Tensor& came) const;
  /// All elements, of what each member brings of its own.
  Future<Tensor> gather(const Group& group, const Tensor& mine, CollectiveOptions options) const;
  /// The same from whole tensors: what this member has of them.
  Tensor cut(const Tensors& wholes) const { return cut_as(rank_, wholes); }
  /// What the member before this one has of them.
  Tensor cut_theirs(const Tensors& wholes) const { return cut_as(before(), wholes); }
  /// What others have, into whole tensors, from gather().
  void put(const Tensor& all, const Tensors& wholes) const;

 private:
  size_t before() const { return (rank_ + ranks_ - 1) % ranks_; }
  Tensor pack(Tensors gradients) const;
  Tensor cut_as(size_t rank, const Tensors& wholes) const;
  std::vector<std::pair<size_t, Tensor>> unpack_as(size_t rank, const Tensor& came) const;
  std::vector<int64_t> rows() const;
  const size_t rank_, ranks_;
  const size_t tensors_;
  const TensorOptions options_;
  const BucketCuts cuts_;
};

}  // namespace troupe::parallel
