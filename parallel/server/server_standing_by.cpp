// What servers do for their backups, and as backups.
#include <fmt/format.h>

#include "actors/worker/worker.h"
#include "core/base/log.h"
#include "parallel/server/server_base.h"

namespace troupe::parallel {
namespace {

constexpr size_t kCallsKept = 64;  // of each trainer; a client has one or two on their way

void follow(Actor& actor, ServerChange change) { dynamic_cast<ServerBase&>(actor).follow(std::move(change)); }

}  // namespace

void install_server_backups(internal::actors::Worker& worker) {
  internal::actors::serve<kFollow, follow>(worker);
  install_backed_servers(worker);
}

// What is refused has changed nothing, and is not passed on.
Pushed ServerBase::perform(ServerChange change) {
  const Pushed pushed = make(change);
  pass_on(std::move(change));
  return pushed;
}

Pushed ServerBase::make(const ServerChange& change) {
  if (change.who.call > 0) last_[change.who.name] = change.who.call;
  switch (change.kind) {
    case ServerChange::join:
      do_join(change.who, static_cast<WorkerId>(change.worker));
      break;
    case ServerChange::leave:
      do_leave(change.who);
      break;
    case ServerChange::lose:
      do_lose(change.who.name, change.text);
      break;
    case ServerChange::read:
      (void)state_.read(change.who.name);
      break;
    case ServerChange::push: {
      const Pushed pushed = do_push(change.who, change.stamp, change.what, change.weight);
      if (change.who.call > 0) {
        auto& calls = done_[change.who.name];
        calls[change.who.call] = pushed;
        if (calls.size() > kCallsKept) calls.erase(calls.begin());
      }
      return pushed;
    }
    case ServerChange::policy:
      do_policy(change.to);
      break;
    default:
      optimizer_->change_options(0, ValueMap(change.changed.begin(), change.changed.end()));
  }
  return {};
}

void ServerBase::follow(ServerChange change) {
  if (follows_) make(change);
}

void ServerBase::pass_on(ServerChange change) {
  if (!pair_.backup) return;
  try {
    followed_ = kFollow.ask(pair_.backup, std::move(change)).then([](const auto&) {});
  } catch (...) {
    followed_ = Future<void>::failed(current_error());
  }
}

Task<void> ServerBase::followed() {
  if (!pair_.backup) co_return;
  const Future<void> last = followed_;
  bool lost = false;
  try {
    co_await last;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::disconnected) throw;
    lost = true;
  }
  if (!lost || !pair_.backup) co_return;
  lost_backup_ = pair_.backup.owner_name();
  pair_.backup = AnyRef();
  internal::log::warning(fmt::format("[server] {} is lost, the backup of servers on {}: they go on without",
                                     lost_backup_, frame().worker->name()));
}

std::optional<Pushed> ServerBase::done_before(const TrainerId& trainer) const {
  const auto calls = done_.find(trainer.name);
  if (trainer.call == 0 || calls == done_.end()) return std::nullopt;
  const auto home = homes_.find(trainer.name);
  if (home == homes_.end() || home->second.client != trainer.client) return std::nullopt;
  const auto at = calls->second.find(trainer.call);
  return at == calls->second.end() ? std::nullopt : std::optional(at->second);
}

std::optional<std::string> ServerBase::goes_on_for() const {
  if (pair_.first == kNoWorker || follows_) return std::nullopt;
  return frame().worker->members().name_of(static_cast<WorkerId>(pair_.first));
}

bool ServerBase::is_standing_by() const {
  return follows_ && !frame().worker->members().loss(static_cast<WorkerId>(pair_.first));
}

// A server that has lost its backup, but not its trainers, has gone on without.
void ServerBase::check_heard(const TrainerId& trainer) const {
  const auto last = last_.find(trainer.name);
  if (trainer.heard <= (last == last_.end() ? 0 : last->second)) return;
  throw_error(
      ErrorKind::failed,
      fmt::format("[server] the backup on {} lacks what {} has done since the two lost each other: go on "
                  "from a checkpoint",
                  frame().worker->name(), goes_on_for().value_or("the first server")));
}

void ServerBase::refuse_context(const TrainerId& trainer, const std::string& what) const {
  const auto before = goes_on_for();
  if (!before || trainer.call == 0) refuse_not_pulled(what, trainer.name);
  throw Error(
      ErrorKind::disconnected,
      fmt::format("{} the gradients of this context were on {}, which is lost, and the values are here: "
                  "make the step again, from its pull on",
                  what, *before))
      .with_worker(*before);
}

std::string ServerBase::backup_text() const {
  if (pair_.backup) return "has a backup on " + pair_.backup.owner_name();
  if (!lost_backup_.empty()) return "has lost its backup on " + lost_backup_;
  if (const auto before = goes_on_for()) return "goes on for " + *before + ", which is lost";
  return pair_.first == kNoWorker ? "" : "is a backup";
}

}  // namespace troupe::parallel
