#include "parallel/data/gradient_reducer.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <vector>

#include "actors/worker/worker.h"
#include "autograd/add_gradient.h"
#include "core/base/mutex.h"
#include "core/tensor/creation.h"
#include "ops/ops.h"
#include "parallel/data/reducer_names.h"

namespace troupe::parallel {
namespace {

using internal::Lock;
using internal::Mutex;

constexpr const char* kPrefix = "[GradientReducer] ";

std::string str(const Group& group) {
  std::string all = group.name();
  for (size_t r = 0; r < group.size(); ++r) all += "\n" + group.label(r);
  return all;
}

ReducerNames& names_here() {
  if (frame().worker)
    if (auto* names = frame().worker->extension<ReducerNames>()) return *names;
  throw_invalid(std::string(kPrefix) + "no worker runs on this thread: make it in an actor of each member");
}

Tensor new_leaf(Tensor t) {
  t.requires_grad_();
  return t;
}

Tensor scaled(const Tensor& t, double factor) { return factor == 1 ? t : ops::mul(t, factor); }

void check_rows(double rows) {
  if (!(rows >= 0) || !std::isfinite(rows))
    throw_invalid(fmt::format("{}{} rows: expected 0 or more", kPrefix, rows));
}

// What is known of a pass when it begins.
struct PassPlan {
  bool reduces = true;
  double own = 1;      // what its gradients of parameters are multiplied by
  double earlier = 1;  // the same of passes that were not reduced
  std::string tag;     // the same on all members, and of no other pass
};

}  // namespace

class GradientReducer::State : public std::enable_shared_from_this<State> {
 public:
  State(Group of, const Tensors& all, const ReducerOptions& options)
      : group(std::move(of)),
        use_(names_here().use({str(group), group.rank(), options.name})),
        timeout(options.timeout) {
    if (use_.name().empty())
      throw_invalid(
          fmt::format("{}rank {} of this group has a reducer \"{}\" already: give this one another "
                      "name (ReducerOptions::name), on all members",
                      kPrefix, group.rank(), options.name));
    for (const Tensor& p : all)
      if (p.requires_grad()) parameters.push_back(p);
    buckets = buckets_of(parameters, options.buckets);
    places.resize(parameters.size());
    for (size_t b = 0; b < buckets.size(); ++b)
      for (size_t k = 0; k < buckets[b].size(); ++k) places[buckets[b][k]] = {b, k};
    unreduced_.resize(parameters.size());
  }

  Future<void> told(size_t index, const std::shared_ptr<autograd::PassGradients>& pass);
  /// The leaf whose gradient in a context is what its passes have left unreduced of a parameter.
  Tensor unreduced(size_t i, bool make) {
    const Lock lock(mutex_);
    Tensor& leaf = unreduced_[i];
    if (!leaf.defined() && make) {  // without elements of its own
      const Tensor& p = parameters[i];
      Shape strides = p.shape();
      for (int k = 0; k < strides.rank(); ++k) strides[k] = 0;
      leaf = new_leaf(zeros({}, p.options()).alias(p.shape(), strides, 0));
    }
    return leaf;
  }
  std::string name() const { return use_.name(); }

  uint64_t next_call() {
    const Lock lock(mutex_);
    return ++last_call_;
  }
  void expect(uint64_t call, const PassPlan& plan) {
    const Lock lock(mutex_);
    calls_[call] = {plan, std::vector<bool>(buckets.size())};
  }
  void forget_call(uint64_t call) {
    const Lock lock(mutex_);
    calls_.erase(call);
  }
  void note_begun(uint64_t call, size_t bucket) {
    const Lock lock(mutex_);
    if (const auto at = calls_.find(call); at != calls_.end()) at->second.begun[bucket] = true;
  }
  void give_up(uint64_t call);

  void set_accumulating(uint64_t context, bool on, double weight = 1) {
    const Lock lock(mutex_);
    auto& now = accumulating_[context];
    if (on)
      ++now.scopes, now.weight = weight;
    else if (--now.scopes == 0)
      accumulating_.erase(context);
  }
  bool accumulates(uint64_t context) const {
    const Lock lock(mutex_);
    return accumulating_.contains(context);
  }
  void forget_pass(uint64_t number) {
    std::map<uint64_t, std::shared_ptr<Reduction>>::node_type gone;  // let go after the lock
    const Lock lock(mutex_);
    gone = reductions_.extract(number);
  }
  CollectiveOptions options_of(const std::string& tag) const {
    return {.tag = tag, .single_use = true, .timeout = timeout};
  }

  const Group group;

 private:
  class Reduction;
  struct Call {
    PassPlan plan;
    std::vector<bool> begun;  // by bucket
  };
  struct Accumulating {
    int scopes = 0;
    double weight = 1;  // of the gradients of passes that are none of backward() or reduce()
  };
  const ReducerNames::Use use_;

 public:
  const std::optional<Duration> timeout;
  Tensors parameters;
  std::vector<std::vector<size_t>> buckets;
  std::vector<std::pair<size_t, size_t>> places;  // of a parameter: its bucket, and where it is there
  /// Reached by every pass. The gradient that backward() gives it is the number of its call; else it is 0.
  const Tensor anchor = new_leaf(zeros({1}, float64));
  /// What passes that were not reduced have brought in a context: rows, and the sum of their losses.
  const Tensor brought = new_leaf(zeros({2}, float64));

 private:
  mutable Mutex mutex_;
  Tensors unreduced_ TROUPE_GUARDED_BY(mutex_);
  uint64_t last_call_ TROUPE_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, Call> calls_ TROUPE_GUARDED_BY(mutex_);
  std::map<uint64_t, Accumulating> accumulating_ TROUPE_GUARDED_BY(mutex_);              // by context
  std::map<uint64_t, std::shared_ptr<Reduction>> reductions_ TROUPE_GUARDED_BY(mutex_);  // by pass
};

// Of one pass on this member. The pass waits for its end, and cancels that if it fails.
class GradientReducer::State::Reduction : public std::enable_shared_from_this<Reduction> {
 public:
  Reduction(std::shared_ptr<State> state, std::shared_ptr<autograd::PassGradients> pass, PassPlan plan,
            uint64_t call)
      : state_(std::move(state)),
        pass_(std::move(pass)),
        plan_(std::move(plan)),
        call_(call),
        buckets_(state_->buckets.size()) {
    for (size_t b = 0; b < buckets_.size(); ++b) buckets_[b].gradients.resize(state_->buckets[b].size());
  }

  Future<void> end() {
    const Future<void> end = end_.future();
    end_.waits_for({shared_from_this(), 0, [](void* self, uint64_t, bool done) {
                      if (!done) static_cast<Reduction*>(self)->cancel();
                    }});
    end.watch([self = shared_from_this()](const Result<void>& r) {
      if (!r.ok() && r.error().kind() == ErrorKind::cancelled) self->cancel();
    });
    return end;
  }

  void told(size_t index) {
    if (index < state_->parameters.size()) take(index);
    if (++told_ <= state_->parameters.size()) return;
    {
      const Lock lock(mutex_);
      all_begun_ = true;
    }
    end_if_done();
  }

  void cancel() { stop(Error(ErrorKind::cancelled, std::string(kPrefix) + "the pass has failed")); }

 private:
  struct Bucket {
    Tensors gradients;
    size_t told = 0;
  };

  void take(size_t index) {
    const NoGradGuard guard;
    const Tensor& leaf = state_->parameters[index];
    Tensor gradient = pass_->take(leaf);
    if (gradient.defined() && gradient.requires_grad())
      throw_error(
          ErrorKind::unimplemented,
          std::string(kPrefix) + "gradients of a pass that is recorded (create_graph) are not reduced");
    if (gradient.defined()) gradient = scaled(gradient, plan_.own);
    if (!plan_.reduces) {
      if (gradient.defined()) pass_->add(state_->unreduced(index, true), std::move(gradient));
      return;
    }
    if (const Tensor other = state_->unreduced(index, false); other.defined())
      if (const Tensor earlier = pass_->total(other); earlier.defined()) {
        pass_->add(other, ops::neg(earlier));
        const Tensor part = scaled(earlier, plan_.earlier);
        gradient = gradient.defined() ? autograd::sum_gradients(std::move(gradient), part) : part;
      }
    const auto [b, k] = state_->places[index];
    buckets_[b].gradients[k] = std::move(gradient);
    if (++buckets_[b].told == state_->buckets[b].size()) begin(b);
  }

  // The last of the list says which gradients there are.
  void begin(size_t b) {
    Tensors list;
    std::vector<double> has;
    const auto& bucket = state_->buckets[b];
    for (size_t k = 0; k < bucket.size(); ++k) {
      const Tensor& leaf = state_->parameters[bucket[k]];
      Tensor gradient = std::move(buckets_[b].gradients[k]);
      has.push_back(gradient.defined());
      if (!gradient.defined()) gradient = zeros(leaf.shape(), leaf.options());
      list.push_back(std::move(gradient));
    }
    list.push_back(tensor(has, list[0].options()));
    const auto sums =
        state_->group.all_reduce(std::move(list), state_->options_of(fmt::format("{}/{}", plan_.tag, b)));
    if (call_) state_->note_begun(call_, b);
    bool late;
    {
      const Lock lock(mutex_);
      late = over_;
      if (!late) ++open_, sums_.push_back(sums);
    }
    if (late) return sums.cancel();
    sums.on_ready([self = shared_from_this(), b](const Result<Tensors>& r) { self->came(b, r); });
  }

  void came(size_t b, const Result<Tensors>& result) {
    if (!result.ok()) {
      const Error& e = result.error();
      return stop(
          e.kind() == ErrorKind::cancelled
              ? Error(ErrorKind::failed, kPrefix + ("the pass of another member has failed: " + e.message()))
              : e);
    }
    try {
      const NoGradGuard guard;
      const Tensors& sums = result.value();
      const auto has = sums.back().to(float64).to_vector<double>();
      const auto& bucket = state_->buckets[b];
      for (size_t k = 0; k < bucket.size(); ++k) {
        const Tensor& leaf = state_->parameters[bucket[k]];
        if (has[k] != 0) pass_->add(leaf, sums[k]);
      }
    } catch (...) {
      return stop(current_error());
    }
    {
      const Lock lock(mutex_);
      --open_;
    }
    end_if_done();
  }

  void end_if_done() {
    {
      const Lock lock(mutex_);
      if (over_ || !all_begun_ || open_) return;
      over_ = true;
      sums_.clear();
    }
    state_->forget_pass(pass_->number());
    end_.set();
  }

  void stop(const Error& why) {
    std::vector<Future<Tensors>> open;
    {
      const Lock lock(mutex_);
      if (std::exchange(over_, true)) return;
      open.swap(sums_);
    }
    state_->forget_pass(pass_->number());
    for (const auto& sums : open) sums.cancel();
    end_.fail(why);
  }

  const std::shared_ptr<State> state_;
  const std::shared_ptr<autograd::PassGradients> pass_;
  const PassPlan plan_;
  const uint64_t call_;
  // Of the pass's own jobs, which run one after the other.
  std::vector<Bucket> buckets_;
  size_t told_ = 0;
  const Promise<void> end_;
  Mutex mutex_;
  std::vector<Future<Tensors>> sums_ TROUPE_GUARDED_BY(mutex_);
  size_t open_ TROUPE_GUARDED_BY(mutex_) = 0;
  bool all_begun_ TROUPE_GUARDED_BY(mutex_) = false;
  bool over_ TROUPE_GUARDED_BY(mutex_) = false;
};

Future<void> GradientReducer::State::told(size_t index,
                                          const std::shared_ptr<autograd::PassGradients>& pass) {
  const uint64_t number = pass->number();
  uint64_t call = 0;
  if (index == parameters.size())
    if (const Tensor said = pass->take(anchor); said.defined()) call = static_cast<uint64_t>(said.item());
  std::shared_ptr<Reduction> reduction;
  bool is_new;
  {
    const Lock lock(mutex_);
    auto& at = reductions_[number];
    is_new = !at;
    const auto known = calls_.find(call);
    if (known != calls_.end() && !is_new)
      throw_error(ErrorKind::failed, std::string(kPrefix) + "a pass came by a parameter before it began");
    if (is_new && known != calls_.end()) {
      at = std::make_shared<Reduction>(shared_from_this(), pass, known->second.plan, call);
    } else if (is_new) {
      PassPlan plan{.tag = fmt::format("{}/pass {}", name(), number)};
      if (const auto now = accumulating_.find(pass->context()); now != accumulating_.end())
        plan.reduces = false, plan.own = now->second.weight;
      at = std::make_shared<Reduction>(shared_from_this(), pass, std::move(plan), 0);
    }
    reduction = at;
  }
  Future<void> end;
  if (is_new) end = reduction->end();
  reduction->told(index);
  return end;
}

// A pass has failed here: the others must not wait for the sums that it has not begun.
void GradientReducer::State::give_up(uint64_t call) {
  Call known;
  {
    const Lock lock(mutex_);
    known = std::move(calls_.extract(call).mapped());
  }
  for (size_t b = 0; known.plan.reduces && b < buckets.size(); ++b) {
    if (known.begun[b]) continue;
    Tensors list;
    for (const size_t i : buckets[b]) list.push_back(zeros(parameters[i].shape(), parameters[i].options()));
    list.push_back(zeros({static_cast<int64_t>(list.size())}, list[0].options()));
    group.all_reduce(std::move(list), options_of(fmt::format("{}/{}", known.plan.tag, b))).cancel();
  }
}

GradientReducer::GradientReducer(Group group, Tensors parameters, const ReducerOptions& options)
    : state_(std::make_shared<State>(std::move(group), std::move(parameters), options)) {
  Tensors watched = state_->parameters;
  watched.push_back(state_->anchor);
  hooks_ = autograd::register_ready_hook(
      watched, [state = state_](size_t i, const std::shared_ptr<autograd::PassGradients>& pass) {
        return state->told(i, pass);
      });
}

GradientReducer::~GradientReducer() = default;

std::string GradientReducer::name() const { return state_->name(); }

Tensor GradientReducer::anchor() const { return state_->anchor; }

void GradientReducer::set_accumulating(bool on) const { state_->set_accumulating(frame().context, on); }

Accumulation GradientReducer::accumulate(double weight) const {
  const uint64_t context = frame().context;
  if (!context)
    throw_invalid(std::string(kPrefix) +
                  "accumulate() is for the passes of a context, and no autograd::Context is active here");
  state_->set_accumulating(context, true, weight);
  return Accumulation([state = state_, context] { state->set_accumulating(context, false); });
}

Task<double> GradientReducer::backward(Tensor loss, double rows, autograd::BackwardOptions options) const {
  check_rows(rows);
  if (options.only_inputs)
    throw_invalid(std::string(kPrefix) +
                  "only_inputs is set, but parameters are what it reduces gradients of");
  if (rows == 0) return run(state_, {}, {}, 0, 0, true, options);
  if (!loss.defined() || loss.numel() != 1)
    throw_invalid(fmt::format("{}the loss of {} rows is {}: expected a tensor of one element, their mean",
                              kPrefix, rows, loss.defined() ? loss.summary() : "undefined"));
  return run(state_, {loss}, {ones_like(loss)}, loss.item(), rows, true, options);
}

Task<void> GradientReducer::reduce(Tensors leaves, Tensors gradients, double rows) const {
  check_rows(rows);
  const auto reducing = run(state_, std::move(leaves), std::move(gradients), 0, rows, false, {});
  (void)co_await reducing;
}

Task<double> GradientReducer::run(std::shared_ptr<State> state, Tensors roots, Tensors gradients, double loss,
                                  double rows, bool weighted, autograd::BackwardOptions options) {
  if (!frame().context)
    throw_invalid(
        std::string(kPrefix) +
        "a pass leaves its gradients in an autograd::Context, and none is active here: make one, here or "
        "where this method is called");
  const uint64_t call = state->next_call();
  PassPlan plan{.reduces = !state->accumulates(frame().context),
                .tag = fmt::format("{}/{}", state->name(), call)};
  const Tensor brings = tensor(std::vector<double>{rows, rows > 0 ? rows * loss : 0}, float64);
  double share = rows;  // that its own gradients count for
  roots.push_back(state->brought);
  gradients.push_back(brings);
  if (plan.reduces) {
    const Tensor before = autograd::context_gradient(state->brought);
    const auto adding = state->group.all_reduce(before.defined() ? ops::add(brings, before) : brings,
                                                state->options_of(plan.tag + "/rows"));
    const Tensor all = co_await adding;
    const auto sum = all.to_vector<double>();
    if (!(sum[0] > 0))
      throw_invalid(std::string(kPrefix) + "no member has a row: there is nothing to learn from");
    share = rows / sum[0], plan.earlier = 1 / sum[0], loss = sum[1] / sum[0];
    gradients.back() = before.defined() ? ops::neg(before) : Tensor();
    if (!before.defined()) roots.pop_back(), gradients.pop_back();
  }
  if (weighted) {
    const NoGradGuard guard;
    for (size_t i = 0; i < roots.size(); ++i)
      if (!roots[i].is_same(state->brought)) gradients[i] = scaled(gradients[i], share);
  } else {
    plan.own = share;
  }
  // First, so that the pass is known before it comes by a parameter.
  roots.insert(roots.begin(), state->anchor);
  gradients.insert(gradients.begin(), tensor(std::vector<double>{static_cast<double>(call)}, float64));
  state->expect(call, plan);
  try {
    const auto passing = autograd::context_backward(roots, gradients, options);
    co_await passing;
  } catch (...) {
    state->give_up(call);
    throw;
  }
  state->forget_call(call);
  co_return loss;
}

}  // namespace troupe::parallel
