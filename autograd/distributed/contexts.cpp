#include "autograd/distributed/contexts.h"

#include "autograd/distributed/messages.h"
#include "core/async/future_combinators.h"

namespace troupe::autograd {

using internal::Lock;
using internal::actors::Invocation;

Contexts::Contexts(internal::actors::Worker& worker,
                   std::function<void(const ContextState&, const Error&)> end_passes)
    : worker_(worker), end_passes_(std::move(end_passes)) {
  kJoined.serve(worker, [this](Invocation& call, uint64_t context) { on_joined(call.from(), context); });
  kRelease.serve_later(worker, [this](const Ref<Invocation>& call, uint64_t context, uint64_t below) {
    forget(context, below, call->call().id != 0).on_ready([call](const Result<void>&) {
      kRelease.answer(*call, {});
    });
  });
}

void Contexts::check_running() const {
  if (stopped_)
    throw_error(ErrorKind::cancelled, "[autograd] worker " + worker_.name() + " has been shut down");
}

uint64_t Contexts::create() {
  const Lock lock(mutex_);
  check_running();
  const uint64_t id = internal::owned_number(worker_.id(), ++last_context_);
  contexts_.emplace(id, std::make_shared<ContextState>());
  return id;
}

bool Contexts::ended(uint64_t context) const {
  const WorkerId originator = internal::owner_of_number(context);
  if (originator == worker_.id())
    return internal::count_of_number(context) <= last_context_;  // not being alive
  auto at = ended_.find(originator);
  return (at != ended_.end() && at->second.contains(internal::count_of_number(context))) ||
         worker_.members().loss(originator);
}

void Contexts::throw_ended(uint64_t context, ErrorKind kind) const {
  const std::string text = "[autograd] the context has ended on worker " + worker_.name();
  if (const auto why = worker_.members().loss(internal::owner_of_number(context)))
    throw Error(ErrorKind::disconnected, text + " with its originator: " + why->message())
        .with_worker(why->worker());
  throw_error(kind, text);
}

uint64_t Contexts::lowest_live() const {
  auto at = contexts_.lower_bound(internal::owned_number(worker_.id(), 0));
  return at != contexts_.end() && internal::owner_of_number(at->first) == worker_.id()
             ? internal::count_of_number(at->first)
             : last_context_ + 1;
}

// Throws if no context can have this number, as far as this worker can know.
void Contexts::check_number(uint64_t context) const {
  const WorkerId originator = internal::owner_of_number(context);
  if (ended(context)) throw_ended(context, ErrorKind::invalid);
  if (originator == worker_.id())
    throw_invalid("[autograd] worker " + worker_.name() + " has made no context of number " +
                  std::to_string(internal::count_of_number(context)));
  if (!worker_.members().find(originator))
    throw_invalid("[autograd] got a context of worker " + std::to_string(originator) +
                  ", which is no member of this cluster");
}

// A worker that has state of a context watches its originator, which knows of it. Workers that it called, or
// that called it, are; others say that they have joined.
Contexts::StatePtr Contexts::join(uint64_t context, WorkerId from) {
  const WorkerId originator = internal::owner_of_number(context);
  StatePtr made;
  {
    const Lock lock(mutex_);
    check_running();
    if (auto at = contexts_.find(context); at != contexts_.end()) return at->second;
    check_number(context);
    made = contexts_[context] = std::make_shared<ContextState>();
  }
  worker_.watch(originator);
  if (worker_.members().loss(originator)) {  // maybe before the state was there to be forgotten
    const Lock lock(mutex_);
    contexts_.erase(context);
    throw_ended(context, ErrorKind::invalid);
  }
  if (from != originator) kJoined.tell(worker_, originator, context);
  return made;
}

Contexts::StatePtr Contexts::find(uint64_t context) const {
  const Lock lock(mutex_);
  auto at = contexts_.find(context);
  return at == contexts_.end() ? nullptr : at->second;
}

Contexts::StatePtr Contexts::find_live(uint64_t context) const {
  if (auto state = find(context)) return state;
  const Lock lock(mutex_);
  check_running();
  check_number(context);
  return std::make_shared<ContextState>();
}

void Contexts::check_live(uint64_t context) {
  if (find(context)) return;
  {
    const Lock lock(mutex_);
    check_running();
  }
  throw_ended(context, ErrorKind::invalid);
}

size_t Contexts::size() const {
  const Lock lock(mutex_);
  return contexts_.size();
}

// `below`: what the originator says of its other contexts; 0 where this is the originator.
Future<void> Contexts::forget(uint64_t context, uint64_t below, bool wait) {
  StatePtr state;
  {
    const Lock lock(mutex_);
    if (internal::owner_of_number(context) != worker_.id()) {
      ended_[internal::owner_of_number(context)].add(internal::count_of_number(context));
      ended_[internal::owner_of_number(context)].add_below(below);
    }
    auto node = contexts_.extract(context);
    if (node.empty()) return Future<void>::ready({});
    state = std::move(node.mapped());
    if (internal::owner_of_number(context) == worker_.id()) below = lowest_live();
  }
  if (!state->running().empty())
    end_passes_(*state,
                Error(ErrorKind::cancelled, "[backward] the context ended while the pass was running"));
  state->end();
  CallFrameScope neutral({&worker_});  // of the callbacks
  std::vector<Future<Value>> told;
  for (WorkerId peer : state->peers()) {
    if (peer == internal::owner_of_number(context) || worker_.members().loss(peer)) continue;
    if (wait)
      told.push_back(kRelease.ask(worker_, peer, context, below));
    else
      kRelease.tell(worker_, peer, context, below);
  }
  Promise<void> done;
  all(told).on_ready([done](const auto&) { done.set(); });  // a lost peer has forgotten it too
  return done.future();
}

void Contexts::on_joined(WorkerId from, uint64_t context) {
  uint64_t below = 0;
  {
    const Lock lock(mutex_);
    if (auto at = contexts_.find(context); at != contexts_.end()) return at->second->add_peer(from);
    below = lowest_live();
  }
  kLateRelease.tell(worker_, from, context, below);
}

Contexts::Lost Contexts::worker_lost(WorkerId id) {
  Lost lost;
  const Lock lock(mutex_);
  for (auto at = contexts_.begin(); at != contexts_.end();) {
    if (internal::owner_of_number(at->first) == id) {
      lost.ended.push_back(std::move(at->second));
      at = contexts_.erase(at);
    } else {
      lost.others.push_back(at->second);
      ++at;
    }
  }
  ended_.erase(id);
  return lost;
}

std::map<uint64_t, Contexts::StatePtr> Contexts::stop() {
  const Lock lock(mutex_);
  stopped_ = true;
  return std::exchange(contexts_, {});
}

}  // namespace troupe::autograd
