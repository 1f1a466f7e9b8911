// Data parallel training, rank by rank: gradients are summed over a group while the backward pass runs.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/cell/task.h"
#include "autograd/distributed/context.h"
#include "autograd/ready_hooks.h"
#include "collective/group.h"
#include "optim/clip.h"
#include "optim/loss_scaler.h"
#include "parallel/data/buckets.h"
#include "parallel/server/compression/compression.h"
#include "parallel/sharded/shard.h"

namespace troupe::internal::parallel {
class ReplicaReducer;
}

namespace troupe::parallel {

class ReducerState;
struct ReplicaPieces;

struct ReducerOptions {
  std::string name = "gradients";  ///< of several reducers that a member has in one group, each has another
  BucketSizes buckets = {};        ///< the same on all members
  std::optional<Duration> timeout = {};  ///< of a reduction; empty: as calls; zero: none
  /// How gradients travel; the same on all members. "bf16", "fp16" (up to 65504): in 16 bits, summed in
  /// float32, and the sum in 16 bits. "topk(0.01)", "1bit": what a member leaves out is added to what it
  /// sends the next time, and is state of its actor.
  /// "powersgd(2)", or a name of register_compression(): a function that all members run for each bucket.
  Compression compression = {};
  /// What all take of the gradients of all members; the same on all. "mean": the sum of their parts, by rows.
  /// "median", "trimmed_mean(0.25)", "clipped_mean(1)", or a name of register_aggregation(): of the gradients
  /// of each one's mean, where one that has none counts as zeros. All members need as many rows then.
  std::string aggregation = "mean";
  /// What members divide among them; the same on all. Shard::all is for DataParallel.
  Shard shard = Shard::none;
};

/// While one is alive, the passes of its context leave their gradients with the replicas, unreduced.
class [[nodiscard]] Accumulation {
 public:
  explicit Accumulation(std::function<void()> end) : end_(std::move(end)) {}
  Accumulation(Accumulation&& o) noexcept : end_(std::exchange(o.end_, nullptr)) {}
  Accumulation& operator=(Accumulation&&) = delete;
  ~Accumulation() {
    if (end_) end_();
  }

 private:
  std::function<void()> end_;
};

/// Sums the gradients of `parameters`, of which each member of a group has a copy. In methods of all members,
/// in an autograd::Context, which may be one of each or one for all:
///
///   parallel::GradientReducer reducer{group, parameters()};  // before the first forward pass
///   const double loss = co_await reducer.backward(cross_entropy(net(x), y), rows);
///
/// The gradients of the context are then those of the mean over the rows of all members, with the same bits
/// everywhere, however large the buckets are. They are reduced where they lie, a bucket as soon as its last
/// gradient is there: after the first pass, buckets are in the order in which the first member's gradients
/// came. A parameter that has a gradient on some members counts as zeros on the others; one that has none on
/// any stays without.
///
/// With a `shard`, each member updates its pieces() by their gradients(), and then all gather():
///
///   optimizer->step(reducer.gradients());  // of an optim::AdamW that was made of reducer.pieces()
///   co_await reducer.gather();
///
/// An optim::Distributed of the member does all of that by itself.
///
/// The context: one that all members are called in, or one of each, that it makes or that another maker
/// calls it in. Members that are called in different contexts of one maker get an error.
class GradientReducer {
 public:
  /// `invalid` if this thread runs no member of the group, or the member has such a reducer already.
  GradientReducer(Group group, Tensors parameters, const ReducerOptions& options = {});
  GradientReducer(GradientReducer&&) noexcept = default;
  GradientReducer& operator=(GradientReducer&&) noexcept = default;
  ~GradientReducer();

  /// A backward pass from the mean over this member's `rows`; without rows, it only takes part. The n-th
  /// calls of all members belong together. Gives the mean over all rows.
  ///
  /// Errors are those of passes and of groups; `invalid` if nobody has rows. A pass that fails on one member,
  /// or whose call is cancelled there, fails on all at once, naming it and why, and leaves the gradients as
  /// they were.
  Task<double> backward(Tensor loss, double rows, autograd::BackwardOptions options = {}) const;
  /// The same from gradients of `leaves` that are there, each of the mean over this member's rows. Those of
  /// leaves that are none of the parameters stay as they are.
  Task<void> reduce(Tensors leaves, Tensors gradients, double rows) const;

  /// Passes of the current context that begin while it is alive leave their gradients unreduced, and the next
  /// one after it sums them with its own: the gradients of the context are those that it would have without,
  /// at the cost of one reduction. So they add up, each that of the mean over the rows of its pass; of k
  /// passes that are to be one batch, each brings its loss / k. (As DataParallel::accumulate.)
  Accumulation accumulate() const;

  /// Of the last pass, in their order: numbers of the parameters in each. One that is frozen on the first
  /// member (requires_grad_(false)) may be in none; whether others have gradients of it, all find out when
  /// the pass is over.
  std::vector<std::vector<size_t>> buckets() const;

  /// What this member updates: leaves, some of which may be pieces of parameters, and show their elements.
  /// With Shard::none the parameters. Those that were frozen when the reducer was made are whole on all.
  /// Contexts have gradients of whole parameters with Shard::state, and of pieces alone with
  /// Shard::gradients.
  Tensors pieces() const;
  /// Of those, in the context of the call.
  Tensors gradients() const;
  /// As LossScaler::unscale_(gradients), of gradients() of all members, which step or leave the step out
  /// together: true if those of all are finite. The n-th calls of all members belong together. Both have to
  /// live until then.
  ///
  ///   Tensors gradients = reducer.gradients();
  ///   const auto unscaling = reducer.unscale_(scaler, gradients);
  ///   if (co_await unscaling) optimizer->step(gradients);
  ///   scaler.update();
  Task<bool> unscale_(optim::LossScaler& scaler, Tensors& gradients) const;
  /// As optim::clip_norm_(gradients, max_norm), of gradients() of all members as those of one model; gives
  /// its norm.
  Task<double> clip_norm_(Tensors& gradients, double max_norm, optim::ClipOptions options = {}) const;

  /// After a step: the parameters have the pieces of all. The n-th gathers of all members belong together.
  /// `failed` if that of another member has.
  Future<void> gather() const;
  /// The last gather(), with its error, of whoever called it.
  Future<void> gathered() const;

  /// The same on all members, and that of no other reducer, before or after.
  std::string name() const;

 private:
  friend class internal::parallel::ReplicaReducer;
  GradientReducer(Group group, Tensors parameters, const ReducerOptions& options, ReplicaPieces pieces);
  class Call;
  Tensor take_waiting(const Tensor& parameter) const;
  template <class F>
  void check(F f) const;
  Accumulation accumulate_as(std::optional<double> rows,
                             std::function<void(const Tensor& parameter, Tensor gradient)> takes = {}) const;
  Task<std::vector<double>> sizes_of_all(Tensors gradients, bool largest) const;
  Task<void> reduce_step(uint64_t step, double share, Tensors leaves, Tensors gradients) const;
  static Task<double> run(std::shared_ptr<ReducerState> state, Tensors roots, Tensors gradients, double loss,
                          double rows, bool weighted, autograd::BackwardOptions options);
  static Future<void> pass(const std::shared_ptr<ReducerState>& state, const Call& call, Tensors roots,
                           Tensors gradients, autograd::BackwardOptions options);
  std::shared_ptr<ReducerState> state_;
  autograd::WatchHandle hooks_;
};

}  // namespace troupe::parallel
