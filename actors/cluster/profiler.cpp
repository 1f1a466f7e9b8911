#include "actors/cluster/profiler.h"

#include <set>

#include "actors/cell/actor_cell.h"
#include "actors/worker/late_messages.h"
#include "core/base/operator_span.h"

namespace troupe::internal::actors {
namespace {

std::string key_of_call(WorkerId caller, const net::Call& call) {
  const std::string from = "w" + std::to_string(caller);
  if (call.store_as) return from + ":value " + std::to_string(call.store_as);
  return call.id ? from + ":" + std::to_string(call.id) : std::string();
}

std::string parent_here() {
  const auto* handled = frame().call.get();
  return handled ? key_of_call(handled->from(), const_cast<Invocation*>(handled)->call()) : std::string();
}

// As its callers have it, be it a method of the type or one that all actors have: "Layer::forward", and
// "Layer::optim.step", which takes other times than that of another type.
std::string method_name(const ActorCell& cell, size_t method) {
  const std::string& label =
      cell.method_label(method);  // "Layer::forward on w1 (Layer#0:3)", "optim.step on ..."
  const std::string name = label.substr(0, label.find(" on "));
  return method < cell.type().methods.size() ? name : cell.type().name + "::" + name;
}

// How many workers of this process have a profile that wants operators.
Mutex watchers_mutex;
int watchers TROUPE_GUARDED_BY(watchers_mutex) = 0;

bool is_operator(const TraceEvent& event) { return event.mode == "operator"; }

}  // namespace

Profiler& Profiler::install(Worker& worker) {
  auto owned = std::unique_ptr<Profiler>(new Profiler(worker));
  Profiler* profiler = owned.get();
  worker.add_extension(std::move(owned));
  kProfileBegin.serve(worker, [profiler](Invocation& call, bool shapes, bool operators) {
    return profiler->begin(call.from(), shapes, operators);
  });
  kProfileClock.serve(worker, [profiler] { return profiler->now(); });
  kProfileEnd.serve(
      worker, [profiler](Invocation& call, int64_t number) { return profiler->end(call.from(), number); });
  return *profiler;
}

// ---- profiles

int64_t Profiler::begin(WorkerId owner, bool shapes, bool operators) {
  int64_t number;
  bool first;
  {
    Lock lock(mutex_);
    if (auto why = worker_.members().loss(owner)) throw *why;  // worker_lost() has been here
    on_ = true;
    if (shapes) shapes_ = true;
    if (operators) wants_operators(true);
    first = scopes_.empty();
    number = ++last_scope_;
    scopes_.emplace(number, Scope{owner, first_ + events_.size(), missed_, shapes, operators});
  }
  if (first) note_open_calls();
  {
    Lock lock(mutex_);
    if (const auto at = scopes_.find(number); at != scopes_.end()) {
      Scope& scope = at->second;
      for (const auto& [id, event] : calls_) scope.before.push_back(event);
      for (const auto& [call, event] : handling_) scope.before.push_back(event);
      std::erase_if(scope.before, [&](uint64_t event) { return event >= scope.first; });
    }
  }
  worker_.watch(owner);  // nobody else would end it
  return number;
}

std::pair<std::vector<TraceEvent>, int64_t> Profiler::end(WorkerId owner, int64_t number) {
  std::vector<TraceEvent> events;
  uint64_t missed = 0;
  {
    Lock lock(mutex_);
    const auto at = scopes_.find(number);
    if (at == scopes_.end() || at->second.owner != owner)
      throw_invalid("[profile] worker " + worker_.name() + " has no profile " + std::to_string(number) +
                    " of " + worker_.members().name_of(owner) + ": it has ended");
    const Scope& scope = at->second;
    for (const uint64_t before : scope.before) events.push_back(events_[before - first_]);
    events.insert(events.end(), events_.begin() + static_cast<std::ptrdiff_t>(scope.first - first_),
                  events_.end());
    if (!scope.shapes)
      for (auto& e : events) e.shapes.clear();
    if (!scope.operators) std::erase_if(events, is_operator);
    missed = missed_ - scope.missed;
    drop(at);
  }
  return {std::move(events), static_cast<int64_t>(missed)};
}

void Profiler::drop(std::map<int64_t, Scope>::iterator scope) {
  scopes_.erase(scope);
  bool shapes = false, operators = false;
  for (const auto& [number, s] : scopes_) shapes |= s.shapes, operators |= s.operators;
  shapes_ = shapes;
  wants_operators(operators);
  if (!scopes_.empty()) return;
  on_ = false;
  first_ += events_.size();
  events_.clear();
  calls_.clear();
  handling_.clear();
}

// The hooks are there while any worker of the process wants them.
void Profiler::wants_operators(bool yes) {
  static constexpr OperatorHooks kHooks{operator_begins, operator_ends};
  if (operators_.exchange(yes) == yes) return;
  Lock lock(watchers_mutex);
  watchers += yes ? 1 : -1;
  operator_hooks.store(watchers ? &kHooks : nullptr, std::memory_order_release);
}

void Profiler::stop() {
  Lock lock(mutex_);
  wants_operators(false);
}

uint64_t Profiler::operator_begins(const char* name) {
  Worker* const worker = frame().worker.get();
  Profiler* const profiler = worker ? worker->extension<Profiler>() : nullptr;
  if (!profiler || !profiler->operators_) return 0;
  TraceEvent event{.mode = "operator", .name = name, .begin = profiler->now()};
  event.worker = event.peer = worker->id();
  event.context = static_cast<int64_t>(frame().context);
  event.parent = parent_here();
  return profiler->note(std::move(event));
}

void Profiler::operator_ends(uint64_t event) {
  Worker* const worker = frame().worker.get();
  Profiler* const profiler = worker ? worker->extension<Profiler>() : nullptr;
  if (!profiler) return;
  Lock lock(profiler->mutex_);
  profiler->finish(event);
}

void Profiler::worker_lost(WorkerId id, const Error&) {
  Lock lock(mutex_);
  for (auto at = scopes_.begin(); at != scopes_.end();) {
    const auto next = std::next(at);
    if (at->second.owner == id) drop(at);
    at = next;
  }
}

// ---- events

TraceEvent Profiler::event_of(const char* mode, std::string name, WorkerId peer, uint64_t context,
                              ValueList& values) const {
  TraceEvent event;
  event.mode = mode;
  event.name = std::move(name);
  event.begin = event.end = now();
  event.worker = worker_.id();
  event.peer = peer;
  event.context = static_cast<int64_t>(context);
  event.parent = parent_here();
  visit_tensors(values, [&](const Tensor& t) {
    if (!t.defined()) return;
    event.bytes += static_cast<int64_t>(t.nbytes());
    if (shapes_.load(std::memory_order_relaxed))
      event.shapes += (event.shapes.empty() ? "" : ", ") + t.summary();
  });
  return event;
}

// Calls that are under way as the first profile begins. Those that end while they are listed have ended now.
void Profiler::note_open_calls() {
  const std::vector<PendingCalls::Made> open = worker_.pending_calls().all();
  std::vector<Ref<Cancellable>> handled = worker_.incoming_calls().all();
  const int64_t present = now();
  const auto time_of = [&](TimePoint then, TimePoint unknown) {
    return then == unknown ? present : then.time_since_epoch().count();
  };
  {
    Lock lock(mutex_);
    for (const auto& call : open) {
      if (call.local) handled.push_back(call.local);
      if (!call.to_actor || call.waits_for_room || calls_.contains(call.id)) continue;
      TraceEvent event{.mode = "call", .name = call.label, .begin = time_of(call.when, TimePoint())};
      event.worker = worker_.id(), event.peer = call.to;
      event.key = "w" + std::to_string(worker_.id()) + ":" + std::to_string(call.id);
      if (const uint64_t number = keep(std::move(event))) calls_[call.id] = number;
    }
    for (const auto& one : handled) {
      const auto& call = static_cast<const Invocation&>(*one);
      const auto cell = call.target_cell();
      if (!cell || handling_.contains(&call)) continue;
      TraceEvent event{.mode = "handle", .name = method_name(*cell, call.method())};
      event.begin = event.start = time_of(call.began(), TimePoint::min());
      event.worker = worker_.id(), event.peer = call.from();
      event.key = key_of_call(call.from(), call.call());
      if (const uint64_t number = keep(std::move(event))) handling_[&call] = number;
    }
  }
  std::set<uint64_t> left;
  for (const auto& call : worker_.pending_calls().all()) left.insert(call.id);
  Lock lock(mutex_);
  for (const auto& call : open)
    if (const auto at = calls_.find(call.id); at != calls_.end() && !left.contains(call.id)) {
      finish(at->second);
      calls_.erase(at);
    }
}

uint64_t Profiler::note(TraceEvent event) {
  Lock lock(mutex_);
  return keep(std::move(event));
}

uint64_t Profiler::keep(TraceEvent event) {
  if (scopes_.empty()) return 0;
  if (events_.size() >= kMaxEvents) return ++missed_, 0;
  events_.push_back(std::move(event));
  return first_ + events_.size() - 1;
}

void Profiler::finish(uint64_t event) {
  if (event >= first_ && event < first_ + events_.size()) events_[event - first_].end = now();
}

Profiler::Span::Span(Profiler* profiler, const char* mode, const std::string& name, uint64_t context)
    : profiler_(profiler && profiler->on() ? profiler : nullptr) {
  if (!profiler_) return;
  ValueList none;
  TraceEvent event = profiler_->event_of(mode, name, profiler_->worker_.id(), context, none);
  event.end = -1;
  event_ = profiler_->note(std::move(event));
}

void Profiler::Span::end() {
  Profiler* const profiler = std::exchange(profiler_, nullptr);
  if (!profiler) return;
  Lock lock(profiler->mutex_);
  profiler->finish(event_);
}

void Profiler::message(bool sent, const char* kind, WorkerId peer, uint64_t number, uint64_t context,
                       ValueList& values) {
  TraceEvent event = event_of(sent ? "send" : "receive", kind, peer, context, values);
  event.key = "gradient " + std::to_string(number);
  note(std::move(event));
}

// Of the workers' own messages only results are of interest here; gradients are noted where they are sent.
void Profiler::service(bool sent, WorkerId peer, net::Call& call) {
  if (call.method != kArgument.method || call.args.size() != 4) return;
  TraceEvent event = event_of(sent ? "send" : "receive", kArgument.name, peer, call.context, call.args);
  event.key = "argument of w" + std::to_string(sent ? peer : worker_.id());
  for (size_t i = 0; i < 3; ++i)  // whose call, its number, and which argument
    if (const auto* n = call.args[i].get_if<int64_t>()) event.key += " " + std::to_string(*n);
  note(std::move(event));
}

void Profiler::outgoing_call(const CallerState& caller, net::Call& call) {
  if (!on()) return;
  if (!call.target.number) return service(true, caller.to, call);
  TraceEvent event = event_of(call.store_as    ? "remote"
                              : call.no_result ? "tell"
                                               : "call",
                              caller.label, caller.to, call.context, call.args);
  event.key = key_of_call(worker_.id(), call);
  const bool waits = call.id && !call.no_result;
  if (waits) event.end = -1;
  const uint64_t number = note(std::move(event));
  if (!waits || !number) return;
  Lock lock(mutex_);
  calls_[call.id] = number;
}

void Profiler::finish_call(const net::Call& call) {
  Lock lock(mutex_);
  const auto node = calls_.extract(call.id);
  if (!node.empty()) finish(node.mapped());
}

void Profiler::call_not_sent(net::Call& call) {
  if (on()) finish_call(call);
}

void Profiler::incoming_reply(const CallerState&, net::Reply& reply) {
  if (!on()) return;
  Lock lock(mutex_);
  const auto node = calls_.extract(reply.id);
  if (!node.empty()) finish(node.mapped());
}

void Profiler::incoming_call(Invocation& invocation) {
  if (!on()) return;
  net::Call& call = invocation.call();
  if (!invocation.cell()) return service(false, invocation.from(), call);
  TraceEvent event = event_of("handle", method_name(*invocation.cell(), invocation.method()),
                              invocation.from(), call.context, call.args);
  event.key = key_of_call(invocation.from(), call);
  event.parent = {};
  const bool answers = (call.id && !call.no_result) || call.store_as;
  if (answers) event.end = -1;
  const uint64_t number = note(std::move(event));
  if (!answers || !number) return;
  Lock lock(mutex_);
  handling_[&invocation] = number;
}

void Profiler::handled(const Invocation& invocation) {
  if (!on()) return;
  Lock lock(mutex_);
  const auto node = handling_.extract(&invocation);
  if (node.empty()) return;
  finish(node.mapped());
  if (invocation.began() != TimePoint::min() && node.mapped() >= first_)
    events_[node.mapped() - first_].start = invocation.began().time_since_epoch().count();
}

void Profiler::outgoing_reply(Invocation& invocation, net::Reply&) { handled(invocation); }
void Profiler::store_result(Invocation& invocation, const Result<Value>&) { handled(invocation); }

}  // namespace troupe::internal::actors
