// Parts of a model whose parameters are whole only while they run (ZeRO stage 3).
#pragma once
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "actors/cell/task.h"
#include "nn/module.h"
#include "parallel/tensor/convert.h"

namespace troupe::parallel {

class PartPieces;

/// What Sharded is for any module.
class ShardedPart {
 public:
  /// A copy, or what it was moved to, is another part, as yet of no replicas. `invalid` once it is one of
  /// some.
  ShardedPart(const ShardedPart& o) { refuse_cut(o); }
  ShardedPart& operator=(const ShardedPart& o) {
    refuse_cut(*this), refuse_cut(o);
    return *this;
  }

 protected:
  ShardedPart() = default;
  ~ShardedPart() = default;
  Task<Tensor> use(std::function<Tensor()> f);
  Task<Tensor> sum_of(std::function<tp::Part()> f);
  static void refuse_cut(const ShardedPart& part);

 private:
  friend class CutParts;
  std::shared_ptr<PartPieces> pieces_;  // null: its parameters are whole
};

/// A module that is a part of a model. In replicas with Shard::all each has a piece of its parameters, with
/// the piece's gradient and state. A call gathers the parameters before it computes, and lets go of them; a
/// backward pass does so again, and leaves each replica the sum of the gradients of its piece:
///
///   struct Net : nn::Module {
///     Task<Tensor> operator()(Tensor x) {
///       x = co_await first(x);
///       co_return co_await second(relu(x));
///     }
///     void members(nn::Members& m) override { m("first", first), m("second", second); }
///     parallel::Sharded<nn::Linear> first{784, 512}, second{512, 10};
///   };
///
/// Parameters have the names that they have in M, "first.weight". Elsewhere it is a module around M, whose
/// call does not wait. Calls are those of actors' methods; all replicas call the same parts in the same
/// order. Within a call parameters are whole, and nothing waits: of an M that gives a tp::Part, the call
/// gives the sum over the ranks, which it waits for afterwards. Of a tp::TransformerEncoderLayer each half is
/// a part. Outside of them the parameters of M are pieces, of one dimension or undefined. A parameter that
/// several parts share, and one that needs no gradient, stays whole.
template <class M>
class Sharded final : public nn::Module, public ShardedPart {
 public:
  template <class... A>
  requires(sizeof...(A) != 1 || !(std::is_same_v<std::remove_cvref_t<A>, Sharded> && ...))  //
      explicit Sharded(A&&... args)
      : module(std::forward<A>(args)...) {}

  template <class... A>
  Task<Tensor> operator()(A... args) {
    using Result = std::invoke_result_t<M&, const A&...>;
    if constexpr (std::is_same_v<Result, Task<Tensor>>)
      static_assert(sizeof(M) == 0,
                    "nothing waits within a part: make parts of the members of this module (of a "
                    "tp::TransformerEncoderLayer it is done: include troupe/tensor_parallel.h)");
    else if constexpr (std::is_same_v<Result, tp::Part>)
      return sum_of([this, args = std::tuple(std::move(args)...)] {
        return std::apply([this](const A&... a) { return module(a...); }, args);
      });
    else
      return use([this, args = std::tuple(std::move(args)...)] {
        return std::apply([this](const A&... a) { return module(a...); }, args);
      });
  }
  void members(nn::Members& m) override { m("", module); }

  M module;
};

}  // namespace troupe::parallel
