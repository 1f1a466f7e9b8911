// What a GradientReducer has on one member: its parameters, and the reductions that are under way.
#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/mutex.h"
#include "core/tensor/creation.h"
#include "parallel/data/compressed_gradients.h"
#include "parallel/data/gradient_reducer.h"
#include "parallel/data/own_reduction.h"
#include "parallel/data/reducer_names.h"
#include "parallel/data/replica_pieces.h"
#include "parallel/sharded/cut_parameters.h"
#include "parallel/sharded/part_pieces.h"

namespace troupe::parallel {

constexpr const char* kOfReducer = "[GradientReducer] ";  // begins its errors
constexpr const char* kIdle = "/others";  // ends tags of what goes for parameters that are in no bucket

/// What is known of a pass when it begins.
struct PassPlan {
  bool reduces = true;
  double own = 1;        ///< what its gradients of parameters are multiplied by
  bool local = false;    ///< they are this member's alone
  bool by_rows = false;  ///< that are not reduced: they wait for a reduce() that knows all rows
  double per_row = 1;    ///< what gradients that wait so are multiplied by
  std::string tag;       ///< the same on all members, and of no other pass
};

/// t * factor.
Tensor scaled(const Tensor& t, double factor);

class PassReduction;
/// It is told of a parameter when a pass has nothing more for it, with the gradient; undefined: none.
using TakesGradient = std::function<void(const Tensor& parameter, Tensor gradient)>;

/// Thread-safe.
class ReducerState : public std::enable_shared_from_this<ReducerState> {
 public:
  ReducerState(Group of, const Tensors& all, const ReducerOptions& options, ReplicaPieces pieces);

  Future<void> told(size_t index, const std::shared_ptr<autograd::PassGradients>& pass);
  /// The leaf whose gradient in a context is what its passes have left unreduced of a parameter.
  Tensor unreduced(size_t i, bool by_rows, bool make);
  std::string name() const { return use_.name(); }

  uint64_t next_sizes() {
    const internal::Lock lock(mutex_);
    return ++last_sizes_;
  }
  uint64_t next_call() {
    const internal::Lock lock(mutex_);
    return ++last_call_;
  }
  /// Of a call of backward() or reduce(), in the context of this thread.
  PassPlan plan_of(uint64_t call) const {
    return {.reduces = !accumulates(frame().context), .tag = name() + "/" + std::to_string(call)};
  }
  /// The step has this number on all members, whose shares add up to 1. `invalid` for shares that an
  /// aggregation cannot take.
  PassPlan plan_of_step(uint64_t step, double share) const;
  /// `invalid` where members count alike, and this one has not as many rows as the others.
  void check_even(double rows, double all) const;
  /// Whether others hear of gradients of the parameters, too: they have to come by a pass of the context.
  bool is_watched_by_others() const;
  void expect(uint64_t call, const PassPlan& plan) {
    const internal::Lock lock(mutex_);
    calls_[call] = plan;
  }
  void forget_call(uint64_t call) {
    const internal::Lock lock(mutex_);
    calls_.erase(call);
  }
  /// A pass has failed here: it fails on all members with this error, which names this one.
  void give_up(const PassPlan& plan, const Error& why) const;
  /// What the others are told then. Empty: of a member that is lost, they hear by themselves.
  std::optional<Error> told_of(const Error& why) const;

  /// `rows`, `takes`: of accumulate_rows() and hand_on().
  void set_accumulating(uint64_t context, bool on, std::optional<double> rows = {},
                        TakesGradient takes = {}) {
    const internal::Lock lock(mutex_);
    auto& now = accumulating_[context];
    if (on)
      ++now.scopes, now.rows = rows, now.takes = std::move(takes);
    else if (--now.scopes == 0)
      accumulating_.erase(context);
  }
  TakesGradient takes_in(uint64_t context) const;
  bool accumulates(uint64_t context) const {
    const internal::Lock lock(mutex_);
    return accumulating_.contains(context);
  }
  void forget_pass(uint64_t number) {
    std::map<uint64_t, std::shared_ptr<PassReduction>>::node_type gone;  // let go after the lock
    const internal::Lock lock(mutex_);
    gone = reductions_.extract(number);
  }
  /// A pass has failed before it came by all parameters: nothing is begun where it still comes.
  void fail_pass(const std::shared_ptr<autograd::PassGradients>& pass);
  /// Whether this is a parameter that is not divided.
  bool is_whole(const Tensor& t) const {
    return std::ranges::any_of(parameters, [&](const Tensor& p) { return p.is_same(t); });
  }
  /// What this member brings to the sums of a step, in bytes, as they would be if all went over a ring.
  int64_t summed_bytes() const;
  /// Whether members learn by themselves now: passes leave what the mean of each one's rows gives.
  bool is_local() const;
  /// Whether gradients are reduced to pieces: then buckets stay as they are cut.
  bool scatters() const { return cut && !cut->whole_gradients(); }
  /// As CutParameters has them, of any bucket.
  Future<Tensor> scatter(size_t b, Tensors gradients, const CollectiveOptions& options) const;
  std::vector<std::pair<Tensor, Tensor>> unpack(size_t b, const Tensor& came) const;
  CollectiveOptions options_of(const std::string& tag) const {
    return {.tag = tag, .single_use = true, .timeout = timeout, .gradients = false};
  }

  /// Whether the first member says in which order buckets are made, and of which parameters.
  bool asks_for_order() const { return asks_for_order_; }
  /// In which buckets are made, as far as this member knows.
  std::vector<size_t> order() const {
    const internal::Lock lock(mutex_);
    return order_;
  }
  /// A pass came by the parameters in this order. The first one counts.
  void note_order(const std::vector<size_t>& order) {
    const internal::Lock lock(mutex_);
    if (!std::exchange(order_is_seen_, true)) order_ = order;
  }
  void note_buckets(const std::vector<std::vector<size_t>>& buckets) {
    const internal::Lock lock(mutex_);
    buckets_ = buckets;
  }
  /// Of the last pass.
  std::vector<std::vector<size_t>> buckets() const {
    const internal::Lock lock(mutex_);
    return buckets_;
  }

  const Group group;

 private:
  static Tensor leaf_of(Tensor t) {
    t.requires_grad_();
    return t;
  }
  size_t own_buckets() const { return buckets().size() - parts.size(); }
  void cut_for(const ReducerOptions& options, const ReplicaPieces& before);
  [[noreturn]] void refuse_pass_of_one() const;
  struct Accumulating {
    int scopes = 0;
    std::optional<double> rows = {};  // of passes that are none of backward() or reduce()
    TakesGradient takes = {};
  };
  const ReducerNames::Use use_;

 public:
  const std::optional<Duration> timeout;
  const BucketSizes sizes;
  const Compression compression;
  const std::unique_ptr<Residuals> residuals;            ///< null: nothing is left out
  const std::shared_ptr<OwnReduction> own;               ///< null: no function of a program reduces them
  Tensors parameters;                                    ///< frozen ones, too, and proxies of those of parts
  std::shared_ptr<CutParameters> cut;                    ///< null: Shard::none
  const std::vector<std::shared_ptr<PartPieces>> parts;  ///< of the last buckets
  const std::shared_ptr<const ParameterAverage> average;
  /// Reached by every pass. The gradient that backward() gives it is the number of its call; else it is 0.
  const Tensor anchor = leaf_of(zeros({1}, float64));

 private:
  bool asks_for_order_ = false;
  mutable internal::Mutex mutex_;
  Tensors unreduced_[2] TROUPE_GUARDED_BY(mutex_);  // and by rows
  std::vector<size_t> order_ TROUPE_GUARDED_BY(mutex_);
  bool order_is_seen_ TROUPE_GUARDED_BY(mutex_) = false;
  std::vector<std::vector<size_t>> buckets_ TROUPE_GUARDED_BY(mutex_);
  uint64_t last_call_ TROUPE_GUARDED_BY(mutex_) = 0;
  uint64_t last_sizes_ TROUPE_GUARDED_BY(mutex_) = 0;  // of unscale_() and clip_norm_()
  std::map<uint64_t, PassPlan> calls_ TROUPE_GUARDED_BY(mutex_);
  std::map<uint64_t, Accumulating> accumulating_ TROUPE_GUARDED_BY(mutex_);                  // by context
  std::map<uint64_t, std::shared_ptr<PassReduction>> reductions_ TROUPE_GUARDED_BY(mutex_);  // by pass
  std::map<uint64_t, std::weak_ptr<autograd::PassGradients>> failed_ TROUPE_GUARDED_BY(mutex_);
};

}  // namespace troupe::parallel
