#include "parallel/server/server_base.h"

#include <fmt/format.h>

#include <mutex>

#include "actors/cell/this_call.h"
#include "actors/worker/worker.h"
#include "core/base/mutex.h"
#include "core/codec/keep.h"
#include "core/graph/node.h"

namespace troupe::parallel {
namespace {

internal::actors::Worker& server_worker() {
  if (!frame().worker) throw_invalid("[server] no worker is active here: servers are actors");
  return *frame().worker;
}

}  // namespace

void check_pull(const Compression& how, const std::string& what) {
  internal::parallel::check_pulls(how, what);
  if (how.on() && frame().context != 0 && grad_enabled())
    throw_invalid(what + " a pull compressed as \"" + how.str() +
                  "\" that a context records: gradients would not run back through it; expected it without "
                  "compression, or under NoGradGuard");
}

void refuse_not_pulled(const std::string& what, const std::string& trainer) {
  throw_invalid(
      fmt::format("{} push_context() of trainer \"{}\", which has pulled nothing in this context since its "
                  "last push; expected a pull first, or weight 0, which ends its step without a gradient",
                  what, trainer));
}

void check_context_push(const VersionStamp& stamp, const std::string& what, const std::string& instead) {
  if (frame().context == 0)
    throw_invalid(what +
                  " push_context() outside of a context; expected an autograd::Context around pull and push");
  if (stamp.local_steps > 0)
    throw_invalid(what + " push_context() under local(H): expected what the local steps changed, by " +
                  instead);
}

// Rung when something has changed that somebody may wait for: by the actor, or by the loss of a worker.
struct ServerBase::Bell {
  Future<void> next() {
    std::lock_guard lock(mutex);
    return promise.future();
  }
  void ring() {
    Promise<void> rung;
    {
      std::lock_guard lock(mutex);
      std::swap(rung, promise);
    }
    rung.set();
  }
  internal::Mutex mutex;
  Promise<void> promise;
};

Task<void> ServerBase::in_charge() {
  while (follows_) {
    const Future<void> changed = bell_->next();
    if (server_worker().members().loss(static_cast<WorkerId>(pair_.first))) {
      follows_ = false;
      co_return;
    }
    co_await changed;
  }
}

ServerBase::ServerBase(const ServerOptions& options, ServerPair pair)
    : options_(options),
      state_(options.policy, options.trainers),
      bell_(std::make_shared<Bell>()),
      pair_(std::move(pair)),
      follows_(pair_.first != kNoWorker),
      entry_(server_worker()) {
  server_worker().on_lost().add(bell_, [bell = std::weak_ptr(bell_)](WorkerId, const Error&) {
    if (const auto alive = bell.lock()) alive->ring();
  });
  if (follows_) server_worker().watch(static_cast<WorkerId>(pair_.first));
}

void ServerBase::use(std::unique_ptr<optim::Optimizer> optimizer) {
  optimizer_ = std::move(optimizer);
  do_policy(state_.policy());
}

// Of what the optimizer has: nothing, if the shard has no tensors but rows.
std::unique_ptr<optim::Optimizer> ServerBase::averager(const ServerPolicy& policy) const {
  const ValueMap options{{"lr", policy.slow_rate}, {"momentum", policy.slow_momentum}};
  const Tensors& all = optimizer_->params();
  return all.empty() ? optim::make("sgd", options, optim::NoParameters()) : optim::make("sgd", options, all);
}

TimePoint ServerBase::now() const { return server_worker().clock().now(); }

// ---- checkpoints

StateDict ServerBase::state() const {
  ValueMap all = saved();
  all["consistency"] = state_.saved();
  all["optimizer"] = internal::to_value(optimizer_->state());
  if (averager_) all["averager"] = internal::to_value(averager_->state());
  ValueList held;
  for (const auto& [step, contributions] : held_)
    for (const auto& [trainer, contribution] : contributions) {
      ValueList what;
      for (const Tensor& t : contribution.what) what.push_back(Codec<Tensor>::to(t));
      held.push_back(
          ValueList{Value(step), Value(trainer), Value(contribution.factor), Value(std::move(what))});
    }
  all["held"] = std::move(held);
  StateDict out;
  for (const auto& [name, value] : all) internal::pack(out, name, value);
  return out;
}

void ServerBase::load_state(const StateDict& state) {
  state_.load(internal::unpack(state, "consistency"));
  use_policy(state_.policy());
  optimizer_->load_state(internal::from_value<StateDict>(internal::unpack(state, "optimizer")));
  if (averager_) averager_->load_state(internal::from_value<StateDict>(internal::unpack(state, "averager")));
  held_.clear();
  using Held = std::tuple<int64_t, std::string, double, Tensors>;
  for (auto& [step, trainer, factor, what] :
       internal::from_value<std::vector<Held>>(internal::unpack(state, "held")))
    held_[step][trainer] = {factor, std::move(what)};
  ValueMap own;
  for (const auto& [name, t] : state)
    if (name.find('.') == std::string::npos) own[name] = internal::unpack(state, name);
  load(std::move(own));
  entry_.write(state_.staleness());
  bell_->ring();
}

// ---- who is there

Task<void> ServerBase::join(TrainerId trainer, WorkerId worker) {
  if (stands_by()) {
    const Task<void> charge = in_charge();
    co_await charge;
  }
  internal::actors::Members& members = server_worker().members();
  if (members.loss(worker))
    throw_invalid(fmt::format("[server] trainer \"{}\" is on {}, which is lost", trainer.name,
                              members.name_of(worker)));
  notice_losses();  // the name of a lost trainer is free
  perform({.kind = ServerChange::join, .who = std::move(trainer), .worker = worker});
  if (has_backup()) {
    const Task<void> everywhere = followed();
    co_await everywhere;
  }
}

void ServerBase::do_join(const TrainerId& trainer, WorkerId worker) {
  if (const auto taken = homes_.find(trainer.name); taken != homes_.end()) {
    if (trainer.client != 0 && taken->second.client == trainer.client) return;  // it asks again
    throw_invalid(
        fmt::format("[server] a trainer \"{}\" has joined already, on {}; expected another name: each "
                    "trainer has its own (ClientOptions::name)",
                    trainer.name, server_worker().members().name_of(taken->second.worker)));
  }
  state_.join(trainer.name);
  if (worker != server_worker().id()) server_worker().watch(worker);
  homes_[trainer.name] = {worker, trainer.client};
  done_.erase(trainer.name), last_.erase(trainer.name), left_.erase(trainer.name);
  bell_->ring();
}

// Two of one name would act as one: a step would close on half of what was expected.
void ServerBase::check_same(const TrainerId& trainer) const {
  check_heard(trainer);
  const auto home = homes_.find(trainer.name);
  if (home == homes_.end() || home->second.client == trainer.client) return;  // state_ knows who is not there
  throw_invalid(
      fmt::format("[server] this trainer \"{}\" has not joined: another one of that name has, on {}; "
                  "expected another name: each trainer has its own (ClientOptions::name)",
                  trainer.name, server_worker().members().name_of(home->second.worker)));
}

Task<void> ServerBase::leave(TrainerId trainer) {
  if (stands_by()) {
    const Task<void> charge = in_charge();
    co_await charge;
  }
  const auto left = left_.find(trainer.name);
  if (trainer.client == 0 || left == left_.end() || left->second != trainer.client)
    perform({.kind = ServerChange::leave, .who = std::move(trainer)});
  if (has_backup()) {
    const Task<void> everywhere = followed();
    co_await everywhere;
  }
}

void ServerBase::do_leave(const TrainerId& trainer) {
  check_same(trainer);
  state_.leave(trainer.name);
  homes_.erase(trainer.name);
  left_[trainer.name] = trainer.client;
  gone(trainer.name);
  close_steps();
}

void ServerBase::notice_losses() {
  if (follows_) return;  // the other one says what it has noticed
  internal::actors::Members& members = server_worker().members();
  const uint64_t epoch = members.epoch();
  if (members_seen_ == epoch) return;
  members_seen_ = epoch;
  std::vector<ServerChange> losses;
  for (const auto& [trainer, home] : homes_)
    if (members.loss(home.worker))
      losses.push_back({.kind = ServerChange::lose, .who = trainer, .text = members.name_of(home.worker)});
  for (ServerChange& loss : losses) perform(std::move(loss));
  close_steps();
}

void ServerBase::do_lose(const std::string& trainer, const std::string& worker) {
  const std::string who = fmt::format("trainer \"{}\" was lost with {}", trainer, worker);
  const int64_t step = state_.open_step();
  if (state_.lose(trainer)) {
    held_.clear();
    abort_ = Error(ErrorKind::disconnected,
                   fmt::format("[server] step {} was aborted: {}; pull again, and do it without", step, who))
                 .with_worker(worker);
    last_loss_ = abort_->message();
  } else {
    last_loss_ = fmt::format("[server] {}: step {} closes on the rest", who, step);
  }
  gone(trainer);
  homes_.erase(trainer);
  close_steps();
}

// ---- reading

std::string ServerBase::awaited() const {
  if (state_.joined() < options_.trainers)
    return fmt::format("trainers to join: {} of {} have", state_.joined(), options_.trainers);
  std::string missing;
  for (const std::string& trainer : state_.missing()) {
    const auto home = homes_.find(trainer);
    missing += (missing.empty() ? "" : ", ") + fmt::format("\"{}\"", trainer);
    if (home != homes_.end()) missing += " on " + server_worker().members().name_of(home->second.worker);
  }
  return fmt::format("the pushes of step {} under {}: missing is trainer {}", state_.open_step(),
                     state_.policy().str(), missing.empty() ? "none" : missing);
}

Task<Consistency::Reading> ServerBase::reading(TrainerId trainer, int64_t at_least) {
  const int64_t aborted = state_.staleness().aborted;
  while (true) {
    const Future<void> changed = bell_->next();  // asked for before looking: no ring goes unheard
    notice_losses();
    if (state_.staleness().aborted != aborted) throw *abort_;
    check_same(trainer);
    if (state_.may_read(trainer.name) && state_.version() >= at_least) {
      const Consistency::Reading reading = state_.read(trainer.name);
      pass_on({.kind = ServerChange::read, .who = std::move(trainer)});
      co_return reading;
    }
    this_call::waits_for(awaited());
    co_await changed;
  }
}

Task<void> ServerBase::reached(int64_t version) {
  while (true) {
    const Future<void> changed = bell_->next();
    notice_losses();
    if (state_.version() >= version) co_return;
    this_call::waits_for(awaited());
    co_await changed;
  }
}

// ---- pushes, and the steps that they close

void ServerBase::check_take(const TrainerId& trainer, const VersionStamp& stamp, double weight) {
  notice_losses();
  check_same(trainer);
  state_.check_push(trainer.name, stamp, weight);
}

Pushed ServerBase::take(const TrainerId& trainer, const VersionStamp& stamp, Tensors what, double weight) {
  notice_losses();
  return perform({.kind = ServerChange::push,
                  .who = trainer,
                  .stamp = stamp,
                  .what = std::move(what),
                  .weight = weight});
}

Pushed ServerBase::do_push(const TrainerId& trainer, const VersionStamp& stamp, Tensors what, double weight) {
  check_same(trainer);
  const auto verdict = state_.push(trainer.name, stamp, weight);
  if (verdict.taken == Consistency::Taken::now)
    apply({{verdict.factor, std::move(what)}}, static_cast<double>(verdict.delay));
  else if (verdict.taken == Consistency::Taken::later)
    held_[verdict.step][trainer.name] = {weight, std::move(what)};
  close_steps();
  return {state_.version(), verdict.taken == Consistency::Taken::never};
}

void ServerBase::close_steps() {
  while (const auto closing = state_.close()) apply(contributions_of(*closing), closing->delay);
  entry_.write(state_.staleness());
  bell_->ring();
}

std::vector<ServerBase::Contribution> ServerBase::contributions_of(const Consistency::Closing& closing) {
  std::vector<Contribution> contributions;
  for (auto& [trainer, contribution] : held_[closing.step])
    if (contribution.factor > 0)
      contributions.push_back({contribution.factor * closing.factor, std::move(contribution.what)});
  held_.erase(closing.step);
  return contributions;
}

void ServerBase::apply(std::vector<Contribution> contributions, double delay) {
  std::erase_if(contributions, [](const Contribution& contribution) { return contribution.factor == 0; });
  if (contributions.empty()) return;
  NoGradGuard guard;
  optim::Optimizer& optimizer = averager_ ? *averager_ : *optimizer_;
  const double lr = optimizer.lr();
  const bool slower = options_.lr_by_delay && delay > 0;
  if (slower) optimizer.set_lr(rate_by_delay(lr, delay));
  update(optimizer, contributions);
  if (slower) optimizer.set_lr(lr);
}

// ---- changes while running

Task<void> ServerBase::set_policy(ServerPolicy policy) {
  if (stands_by()) {
    const Task<void> charge = in_charge();
    co_await charge;
  }
  perform({.kind = ServerChange::policy, .to = policy});
  if (has_backup()) {
    const Task<void> everywhere = followed();
    co_await everywhere;
  }
}

void ServerBase::do_policy(const ServerPolicy& policy) {
  for (const auto& closing : state_.set_policy(policy)) apply(contributions_of(closing), closing.delay);
  use_policy(policy);
  close_steps();
}

void ServerBase::use_policy(const ServerPolicy& policy) {
  // SlowMo (Wang et al. 2020): momentum over the averages, which are steps along the mean difference.
  if (policy.kind != ServerPolicy::Kind::local)
    averager_.reset();
  else if (!averager_ || averager_->number("momentum") != policy.slow_momentum)
    averager_ = averager(policy);
  else
    averager_->set_lr(policy.slow_rate);
}

Task<void> ServerBase::set_options(std::map<std::string, Value> changed) {
  if (stands_by()) {
    const Task<void> charge = in_charge();
    co_await charge;
  }
  perform({.kind = ServerChange::options, .changed = std::move(changed)});
  if (has_backup()) {
    const Task<void> everywhere = followed();
    co_await everywhere;
  }
}

ServerReport ServerBase::report() {
  notice_losses();
  const StalenessLedger& staleness = state_.staleness();
  return {state_.policy().str(),
          state_.version(),
          state_.open_step(),
          state_.trainers(),
          state_.missing(),
          {staleness.delays.begin(), staleness.delays.end()},
          {staleness.weights.begin(), staleness.weights.end()},
          staleness.late,
          staleness.aborted,
          staleness.lost,
          last_loss_,
          backup_text()};
}

}  // namespace troupe::parallel
