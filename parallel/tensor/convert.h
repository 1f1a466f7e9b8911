// Conversions of tensors between the ranks of a group: what is sent forward, and what its gradient is.
#pragma once
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/cell/task.h"
#include "collective/group.h"
#include "core/async/future.h"
#include "core/base/even_sizes.h"
#include "core/tensor/tensor.h"

namespace troupe::tp {

/// How many of n each of `ranks` has: as many as the others, the first ones one more if that does not go.
inline std::vector<int64_t> even_sizes(int64_t n, size_t ranks) { return internal::even_sizes(n, ranks); }

// Conversions. Each member of the group calls them in methods, all in the same order within a call; calls,
// micro-batches and backward passes may be under way in any. What does not wait gives a tensor, the others a
// future. They are recorded while the grad mode is on, and differentiable as often as one likes, since
// conversions are the derivatives of conversions: a pass of the context that reaches a result on one rank has
// to reach it on all (parallel::same_on_all, weighted_mean). A rank whose gradient did not come counts as
// zeros; if none came to any, none goes on. Integers can be converted, without gradients. Over a group of one
// rank they give x. In a context what is made of cut or partial tensors needs a gradient on all ranks,
// whether or not the own part does.
//
// Sizes may differ between ranks, or be zero. `sizes` are those of the ranks along the dimension. They are
// even_sizes() where it is cut, unless they are given; where it was cut before, the ranks tell each other
// theirs unless they are given. Errors are those of Group's operations; a gradient that is given up ends them
// on all ranks. `layer` is for their texts. With TROUPE_CHECK_RANKS=1 the ranks compare what is whole,
// forward and back.

/// What a tensor is, over the ranks of a group, and what its gradient is then. Operations of a Group know
/// nothing of that, and each rank's loss counts by itself: all_gather is gather(), reduce_scatter is
/// sum_scatter(), all_reduce is enter(sum()); a conversion sends less, as it knows what is equal on all
/// ranks.
///
///     whole      equal on all ranks; the gradient is whole, equal and all of it on each
///     repeated   equal on all ranks, which use it each for itself; the gradient is partial
///     cut        each rank has some of it, along a dimension; the gradient is cut likewise
///     partial    each rank has a summand; the gradient is repeated
///
/// Whole and repeated differ in the gradient alone: of a loss that all ranks compute alike from a whole
/// tensor each has all of the gradient, and a sum over the ranks would give it too often; of a repeated one
/// each has the part that comes of what it alone computes.
///
/// This one makes a whole tensor repeated. Nothing is sent; back, an all_reduce.
Tensor enter(const Tensor& x, const Group& group, std::string_view layer = {});
/// Does so with several at once, such as the parameters of a layer: back, one all_reduce of all of them.
Tensors enter(const Tensors& xs, const Group& group, std::string_view layer = {});
/// Of partial ones the whole: an all_reduce; back, nothing is sent.
Future<Tensor> sum(const Tensor& x, const Group& group, std::string_view layer = {});
/// Of a cut one all of it, repeated: an all_gather; back, a reduce_scatter.
Future<Tensor> gather(const Tensor& x, const Group& group, int64_t dim,
                      const std::vector<int64_t>& sizes = {});
/// Of partial ones the sum, cut: a reduce_scatter; back, an all_gather.
Future<Tensor> sum_scatter(const Tensor& x, const Group& group, int64_t dim,
                           const std::vector<int64_t>& sizes = {});
/// Of a whole one the rank's part. Nothing is sent; back, an all_gather.
Tensor cut(const Tensor& x, const Group& group, int64_t dim, const std::vector<int64_t>& sizes = {});
/// Of a cut one the whole: an all_gather; back, nothing is sent.
Future<Tensor> join(const Tensor& x, const Group& group, int64_t dim, const std::vector<int64_t>& sizes = {});
/// One that is cut along `from` is cut along `to` then: an all_to_all, forward and back.
Future<Tensor> exchange(const Tensor& x, const Group& group, int64_t from, int64_t to,
                        const std::vector<int64_t>& from_sizes = {},
                        const std::vector<int64_t>& to_sizes = {});

/// Rows of a cut one go to other ranks: sent[r] of them, which follow each other, to rank r; received[r] come
/// from it, and lie in the order of the ranks. An all_to_all, forward and back.
Future<Tensor> route(const Tensor& x, const Group& group, const std::vector<int64_t>& sent,
                     const std::vector<int64_t>& received, std::string_view layer = {});
/// It routes where each rank knows what all send, rows[k][r] of rank k to rank r. So they need not tell each
/// other first.
Future<Tensor> route_known(const Tensor& x, const Group& group, const std::vector<std::vector<int64_t>>& rows,
                           std::string_view layer = {});

/// The largest of the ranks' elements, place by place, on all of them; without a gradient.
Future<Tensor> largest(const Tensor& x, const Group& group, std::string_view layer = {});

/// A summand of a tensor, of which the other ranks of the group have the others. It is no tensor, so that
/// nobody computes with it by mistake: `co_await part`, or sum() or sum_scatter() it.
struct [[nodiscard]] Part {
  Tensor summand;
  Group group;
  std::string layer = {};  ///< that it comes from, for errors

  // For the compiler's answer to who uses it as one.
  template <class T>
    requires std::same_as<T, Tensor>
  operator T() const {
    static_assert(sizeof(T) == 0,
                  "this is a rank's summand, and no tensor yet: co_await it, or tp::sum() it");
    return {};
  }
};
Future<Tensor> sum(const Part& part);
Future<Tensor> sum_scatter(const Part& part, int64_t dim, const std::vector<int64_t>& sizes = {});
inline auto operator co_await(const Part& part) { return operator co_await(sum(part)); }

}  // namespace troupe::tp
