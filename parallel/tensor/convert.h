// Conversions of tensors between the ranks of a group: what is sent forward, and what its gradient is.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/cell/task.h"
#include "collective/group.h"
#include "core/async/future.h"
#include "core/tensor/tensor.h"

namespace troupe::tp {

/// How many of n each of `ranks` has: as many as the others, the first ones one more if that does not go.
std::vector<int64_t> even_sizes(int64_t n, size_t ranks);

// What a tensor is, over the ranks of a group, and what its gradient is then:
//
//   whole     equal on all ranks                              its gradient is whole: equal, all of it on each
//   repeated  equal on all ranks, each uses it for itself     its gradient is partial
//   cut       each rank has some of it, along a dimension     its gradient is cut in the same way
//   partial   each rank has a summand                         its gradient is repeated
//
//   conversion         from      to        forward         gradient
//   enter(x)           whole     repeated  nothing         all_reduce
//   sum(x)             partial   whole     all_reduce      nothing
//   gather(x)          cut       repeated  all_gather      reduce_scatter
//   sum_scatter(x)     partial   cut       reduce_scatter  all_gather
//   cut(x)             whole     cut       nothing         all_gather
//   join(x)            cut       whole     all_gather      nothing
//   exchange(x)        cut       cut       all_to_all      all_to_all
//
// Whole and repeated differ in the gradient alone: of a loss that every rank computes alike from a whole
// tensor, each has all of the gradient, and adding those up would give it too often; of a repeated one each
// rank has the part that comes of what it alone computes.
//
// Each member calls them in methods, all in the same order within a call; calls, micro-batches and backward
// passes may be under way in any. What does not wait gives a tensor, the others a future, and both are
// recorded while the grad mode is on: a pass of the context that reaches the result on one rank has to reach
// it on all (same_on_all, weighted_mean). Each is differentiable as often as one likes: conversions are the
// derivatives of conversions. A rank whose gradient did not come counts as zeros; if none came to any, none
// goes on. Integers can be converted, without gradients. Over a group of one rank they give x.
//
// Sizes may differ between ranks, or be zero. `sizes`, of the ranks along the dimension, are even_sizes()
// where it is cut, unless they are given; where it was cut before, the ranks tell each other theirs unless
// they are given. Errors are those of Group's operations; a gradient that is given up ends them on all ranks.
// `layer` is for their texts. With TROUPE_CHECK_RANKS=1 the ranks compare what is whole, forward and back.

Tensor enter(const Tensor& x, const Group& group, std::string_view layer = {});
Future<Tensor> sum(const Tensor& x, const Group& group, std::string_view layer = {});
Future<Tensor> gather(const Tensor& x, const Group& group, int64_t dim,
                      const std::vector<int64_t>& sizes = {});
Future<Tensor> sum_scatter(const Tensor& x, const Group& group, int64_t dim,
                           const std::vector<int64_t>& sizes = {});
Tensor cut(const Tensor& x, const Group& group, int64_t dim, const std::vector<int64_t>& sizes = {});
Future<Tensor> join(const Tensor& x, const Group& group, int64_t dim, const std::vector<int64_t>& sizes = {});
/// From being cut along one dimension to being cut along another.
Future<Tensor> exchange(const Tensor& x, const Group& group, int64_t from, int64_t to,
                        const std::vector<int64_t>& from_sizes = {},
                        const std::vector<int64_t>& to_sizes = {});

/// The largest of the ranks' elements, place by place, on all of them; without a gradient.
Future<Tensor> largest(const Tensor& x, const Group& group, std::string_view layer = {});

/// A summand of a tensor, of which the other ranks of the group have the others. It is no tensor, so that
/// nobody computes with it by mistake: `co_await part`, or sum() or sum_scatter() it.
struct [[nodiscard]] Part {
  Tensor summand;
  Group group;
  std::string layer = {};  ///< that it comes from, for errors
};
Future<Tensor> sum(const Part& part);
Future<Tensor> sum_scatter(const Part& part, int64_t dim, const std::vector<int64_t>& sizes = {});
inline auto operator co_await(const Part& part) { return operator co_await(sum(part)); }

}  // namespace troupe::tp
