#include "parallel/data/gradient_reducer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "actors/cell/invocation.h"
#include "ops/ops.h"
#include "parallel/data/reducer_state.h"

namespace troupe::parallel {
namespace {

void check_rows(double rows) {
  if (!(rows >= 0) || !std::isfinite(rows))
    throw_invalid(fmt::format("{}{} rows: expected 0 or more", kOfReducer, rows));
}

// The context that the call came in, and not one that the method has made. 0: none.
uint64_t context_of_call() {
  const auto& call = frame().call;
  return call && call->call().context == frame().context ? frame().context : 0;
}

}  // namespace

// A call of backward() or reduce(). Unless it comes to its end, nobody waits for this member.
class GradientReducer::Call {
 public:
  explicit Call(std::shared_ptr<ReducerState> state)
      : state_(std::move(state)), number_(state_->next_call()), plan(state_->plan_of(number_)) {}
  Call(std::shared_ptr<ReducerState> state, PassPlan known)
      : state_(std::move(state)), number_(state_->next_call()), plan(std::move(known)) {}
  Call(const Call&) = delete;
  ~Call() {
    state_->forget_call(number_);
    if (is_over_ || !frame().actor) return;
    try {
      state_->give_up(plan, why_);
    } catch (const Error&) {  // the actor, or its worker, ends: all hear of that
    }
  }
  uint64_t number() const { return number_; }
  void expect() const { state_->expect(number_, plan); }
  void fail(Error why) { why_ = std::move(why); }
  void end() { is_over_ = true; }

 private:
  const std::shared_ptr<ReducerState> state_;
  const uint64_t number_;
  Error why_{ErrorKind::cancelled, "its call was cancelled"};
  bool is_over_ = false;

 public:
  PassPlan plan;
};

GradientReducer::GradientReducer(Group group, Tensors parameters, const ReducerOptions& options)
    : GradientReducer(std::move(group), std::move(parameters), options, ReplicaPieces()) {}

GradientReducer::GradientReducer(Group group, Tensors parameters, const ReducerOptions& options,
                                 ReplicaPieces pieces)
    : state_(std::make_shared<ReducerState>(std::move(group), std::move(parameters), options,
                                            std::move(pieces))) {
  Tensors watched = state_->parameters;
  watched.push_back(state_->anchor);
  hooks_ = autograd::register_ready_hook(
      watched, [state = state_](size_t i, const std::shared_ptr<autograd::PassGradients>& pass) {
        return state->told(i, pass);
      });
}

GradientReducer::~GradientReducer() = default;

std::vector<std::vector<size_t>> GradientReducer::buckets() const { return state_->buckets(); }

std::string GradientReducer::name() const { return state_->name(); }

Tensors GradientReducer::pieces() const {
  if (!state_->cut) return state_->parameters;
  Tensors all;
  const auto& cut = state_->cut->pieces();
  for (size_t i = 0; i < cut.size(); ++i)
    if (!cut[i].whole.defined())
      all.push_back(state_->parameters[i]);
    else if (cut[i].piece.defined())
      all.push_back(cut[i].piece);
  return all;
}

Tensors GradientReducer::gradients() const {
  Tensors all;
  if (!state_->cut) {
    for (const Tensor& p : state_->parameters) all.push_back(autograd::context_gradient(p));
    return all;
  }
  const auto& cut = state_->cut->pieces();
  for (size_t i = 0; i < cut.size(); ++i)
    if (!cut[i].whole.defined())
      all.push_back(autograd::context_gradient(state_->parameters[i]));
    else if (cut[i].piece.defined())
      all.push_back(optim::context_gradient(cut[i], *state_->cut));
  return all;
}

// Of all members, one behind the other; what all have counts once.
Task<std::vector<double>> GradientReducer::sizes_of_all(Tensors gradients, bool largest) const {
  const auto state = state_;
  const Tensors updated = pieces();
  const std::string tag = fmt::format("{}/sizes {}", state->name(), state->next_sizes());
  if (gradients.size() != updated.size()) {
    const Error why(ErrorKind::invalid,
                    fmt::format("{}{} gradients of {} pieces on rank {}: expected those of gradients()",
                                kOfReducer, gradients.size(), updated.size(), state->group.rank()));
    if (state->cut) state->group.give_up(tag, why);
    throw why;
  }
  if (!state->cut) co_return optim::gradient_sizes(gradients, largest);
  for (size_t i = 0; i < updated.size(); ++i)
    if (state->group.rank() > 0 && state->is_whole(updated[i])) gradients[i] = {};
  const Tensor mine = tensor(optim::gradient_sizes(gradients, largest), float64);
  const auto gathering = state->group.all_gather(mine, state->options_of(tag));
  const Tensor all = co_await gathering;
  co_return all.to_vector<double>();
}

Task<bool> GradientReducer::unscale_(optim::LossScaler& scaler, Tensors& gradients) const {
  if (scaler.unscaled(state_.get()))
    throw_invalid("[loss_scaler] the gradients of this reducer are unscaled already: call update() first");
  const auto asking = sizes_of_all(gradients, true);
  const std::vector<double> sizes = co_await asking;
  const bool finite = std::ranges::all_of(sizes, [](double size) { return std::isfinite(size); });
  scaler.note_unscaled(state_.get(), finite);
  for (Tensor& g : gradients)
    if (g.defined()) g = optim::scaled(g, 1 / scaler.scale());
  co_return finite;
}

Task<double> GradientReducer::clip_norm_(Tensors& gradients, double max_norm,
                                         optim::ClipOptions options) const {
  (void)optim::clip_factor(0, max_norm, options);  // bad arguments, before anything is sent
  const auto asking = sizes_of_all(gradients, options.largest);
  const std::vector<double> sizes = co_await asking;
  const double norm = optim::norm_of_sizes(sizes, options.largest);
  const double factor = optim::clip_factor(norm, max_norm, options);
  for (Tensor& g : gradients)
    if (factor < 1 && g.defined()) g = optim::scaled(g, factor).to(g.dtype());
  co_return norm;
}

Future<void> GradientReducer::gather() const {
  return state_->cut ? state_->cut->gather() : Future<void>::ready({});
}

Future<void> GradientReducer::gathered() const {
  return state_->cut ? state_->cut->gathered() : Future<void>::ready({});
}

Accumulation GradientReducer::accumulate() const { return accumulate_as({}); }

Tensor GradientReducer::take_waiting(const Tensor& parameter) const {
  for (size_t i = 0; i < state_->parameters.size(); ++i)
    if (state_->parameters[i].is_same(parameter)) {
      const Tensor waiting = state_->unreduced(i, true, false);
      return waiting.defined() ? autograd::exchange_context_gradient(waiting, {}) : Tensor();
    }
  return {};
}

Accumulation GradientReducer::accumulate_as(
    std::optional<double> rows, std::function<void(const Tensor& parameter, Tensor gradient)> takes) const {
  const uint64_t context = frame().context;
  if (!context)
    throw_invalid(std::string(kOfReducer) +
                  "accumulate() is for the passes of a context, and no autograd::Context is active here");
  state_->set_accumulating(context, true, rows, std::move(takes));
  return Accumulation([state = state_, context] { state->set_accumulating(context, false); });
}

// Others do not wait for a member whose call has failed before it began.
template <class F>
void GradientReducer::check(F f) const {
  if (!frame().context)
    throw_invalid(
        std::string(kOfReducer) +
        "a pass leaves its gradients in an autograd::Context, and none is active here: make one, here or "
        "where this method is called");
  try {
    f();
  } catch (const Error& e) {
    Call(state_).fail(e);
    throw;
  }
}

Task<double> GradientReducer::backward(Tensor loss, double rows, autograd::BackwardOptions options) const {
  if (options.only_inputs)
    throw_invalid(std::string(kOfReducer) +
                  "only_inputs is set, but parameters are what it reduces gradients of");
  check([&] {
    check_rows(rows);
    if (rows > 0 && (!loss.defined() || loss.numel() != 1))
      throw_invalid(fmt::format("{}the loss of {} rows is {}: expected a tensor of one element, their mean",
                                kOfReducer, rows, loss.defined() ? loss.summary() : "undefined"));
    if (rows > 0 && !loss.requires_grad())
      throw_invalid(
          std::string(kOfReducer) +
          "the loss needs no gradient: all that it was computed from is frozen, or grad mode was off; "
          "a member that has nothing to learn brings {} and 0 rows");
  });
  if (rows == 0) return run(state_, {}, {}, 0, 0, true, options);
  return run(state_, {loss}, {ones_like(loss)}, loss.item(), rows, true, options);
}

Task<void> GradientReducer::reduce(Tensors leaves, Tensors gradients, double rows) const {
  check([&] { check_rows(rows); });
  const auto reducing = run(state_, std::move(leaves), std::move(gradients), 0, rows, false, {});
  (void)co_await reducing;
}

Task<double> GradientReducer::run(std::shared_ptr<ReducerState> state, Tensors roots, Tensors gradients,
                                  double loss, double rows, bool weighted,
                                  autograd::BackwardOptions options) {
  // Before `call`: where this coroutine is ended, the others hear why before they hear of these.
  Future<Tensor> adding;
  Future<void> passing;
  Call call(state);
  try {
    PassPlan& plan = call.plan;
    const Tensor brings = tensor(std::vector<double>{rows, rows > 0 ? rows * loss : 0}, float64);
    CollectiveOptions of_rows = state->options_of(plan.tag + "/rows");
    of_rows.context = context_of_call();
    adding = state->group.all_reduce(brings, of_rows);
    const Tensor all = co_await adding;
    const auto sum = all.to_vector<double>();
    if (!(sum[0] > 0))
      throw_invalid(std::string(kOfReducer) + "no member has a row: there is nothing to learn from");
    state->check_even(rows, sum[0]);
    const double share = rows / sum[0];  // that its own gradients count for
    plan.per_row = 1 / sum[0], loss = sum[1] / sum[0];
    if (weighted) {
      const NoGradGuard guard;
      for (Tensor& g : gradients) g = scaled(g, share);
    } else {
      plan.own = share;
    }
    passing = pass(state, call, std::move(roots), std::move(gradients), options);
    co_await passing;
  } catch (...) {
    call.fail(current_error());
    throw;
  }
  call.end();
  co_return loss;
}

// The call has a plan of this pass.
Future<void> GradientReducer::pass(const std::shared_ptr<ReducerState>& state, const Call& call,
                                   Tensors roots, Tensors gradients, autograd::BackwardOptions options) {
  // First, so that the pass is known before it comes by a parameter.
  roots.insert(roots.begin(), state->anchor);
  gradients.insert(gradients.begin(),
                   tensor(std::vector<double>{static_cast<double>(call.number())}, float64));
  call.expect();
  return autograd::context_backward(roots, std::move(gradients), options);
}

Task<void> GradientReducer::reduce_step(uint64_t step, double share, Tensors leaves,
                                        Tensors gradients) const {
  const auto state = state_;
  Future<void> passing;  // It outlives the call, as in run().
  Call call(state, state->plan_of_step(step, share));
  try {
    passing = pass(state, call, std::move(leaves), std::move(gradients), {});
    co_await passing;
  } catch (...) {
    call.fail(current_error());
    throw;
  }
  call.end();
}

}  // namespace troupe::parallel
