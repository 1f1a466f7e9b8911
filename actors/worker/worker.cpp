#include "actors/worker/worker.h"

#include <set>

#include "actors/worker/guests.h"
#include "actors/worker/open_calls.h"
#include "actors/worker/reports.h"
#include "actors/worker/traffic_service.h"
#include "core/base/fork.h"
#include "core/base/thread.h"
#include "core/graph/grad_mode_note.h"

namespace troupe::internal::actors {

static WorkerOptions with_runtime(WorkerOptions options) {
  if (!options.runtime) options.runtime = Runtime::make();
  return options;
}

// That the grad mode of a method came with its call, and from where, if it turned recording off.
static std::string note_of_grad_mode() {
  Invocation& call = *frame().call;
  if (call.call().grad_enabled) return {};
  return "grad mode is off in " + (frame().what ? *frame().what : "this method") +
         ": it came with the call from " + call.host().members.name_of(call.from()) +
         ", which was made under a NoGradGuard, or in the shell outside a context. A method that uses "
         "gradients of its own opens an EnableGradGuard";
}

Worker::Worker(WorkerOptions options)
    : options_(with_runtime(std::move(options))),
      timeout_ns_(options_.timeout.count()),
      links_(members_, options_.host, [this](WorkerId id, const Error& why) { lose(id, why); }),
      pending_({std::max<size_t>(options_.limits.bytes, 1), std::max<size_t>(options_.limits.messages, 1)}),
      parked_(*options_.runtime, traffic_,
              [this](net::Connection& connection, net::Packet&& packet) {
                if (!members_.loss(connection.peer().id)) take_in(connection, std::move(packet));
              }),
      canceller_(std::make_shared<Canceller>(*this)),
      as_host_{.worker = *this,
               .id = options_.id,
               .name = options_.name,
               .clock = *options_.clock,
               .runtime = *options_.runtime,
               .dispatch = options_.dispatch,
               .traffic = traffic_,
               .members = members_,
               .live_cells = live_cells_,
               .unheard = unheard_,
               .interceptors = interceptors_,
               .actor_methods = actor_methods_,
               .notify_started = [this](WorkerId caller, uint64_t id) { notify_started(caller, id); },
               .pass_on = [this](const HandOver& how, Invocation& call, const Value& result,
                                 net::Reply& reply) { return pass_on(how, call, result, reply); },
               .late_arguments = late_arguments_} {
  set_grad_mode_note(note_of_grad_mode);
  Guests::install(*this);
  install_traffic(*this);
  install_reports(*this);
  install_open_calls(*this);
  install_late_arguments();
  add_metrics([this](Metrics& m) {
    m["actors"] = live_cells_.count();
    m["threads"] = options_.runtime->threads();
    m["timeout_ms"] = std::chrono::duration_cast<std::chrono::milliseconds>(timeout()).count();
    m["pending_calls"] = static_cast<int64_t>(pending_.size());
    const FlowControl::Sums flow = pending_.in_flight();
    m["in_flight_calls"] = static_cast<int64_t>(flow.messages);
    m["in_flight_bytes"] = static_cast<int64_t>(flow.bytes);
    m["unanswered_calls"] = static_cast<int64_t>(incoming_.size());
    m["parked_packets"] = static_cast<int64_t>(parked_.count());
    if (!transport_) return;
    const net::SentCounts sent = transport_->sent();
    for (size_t i = 0; i < sent.size(); ++i) {
      const std::string by = std::string("_by_") + net::kSentBy[i] + "_sent";
      m["tensor_messages" + by] = sent[i].messages;
      m["tensor_bytes" + by] = sent[i].bytes;
    }
  });
  serve_status();
  if (options_.timer_thread) timer_ = start_thread("worker", [this] { timer_loop(); });
}

Worker::~Worker() { end(); }

void Worker::end() {
  if (ended_.exchange(true)) return;
  end_refused_child("the end of a worker");
  disconnect();
  canceller_->close();
  incoming_.clear();
  late_arguments_.clear();
  for (auto& added : extensions_) added.extension->stop();
  parked_.finish();
  std::unordered_map<ObjectId, std::shared_ptr<ActorCell>> actors;
  std::vector<std::weak_ptr<ActorCell>> released;
  {
    Lock lock(actors_mutex_);
    actors.swap(actors_);
    released.swap(released_);
  }
  const Error stopping(ErrorKind::cancelled, "[call] worker " + name() + " is shutting down");
  for (auto& weak : released)  // their coroutines may wait still
    if (auto cell = weak.lock()) cell->cancel_suspensions(stopping);
  for (auto& [id, cell] : actors) {
    cell->cancel_suspensions(stopping);
    cell->release();
  }
  actors.clear();
  live_cells_.wait_until_none();
  unheard_.end();
  {
    Lock lock(timer_mutex_);
    stopping_ = true;
  }
  timer_wake_.notify_one();
  if (timer_.joinable()) timer_.join();
}

void Worker::stop() {
  if (stopped_.exchange(true)) return;
  links_.stop();
  for (auto& call : pending_.take_all(kNoWorker)) {
    undo(call);
    call.promise.fail(Error(ErrorKind::cancelled,
                            "[call] " + call.caller.label + ": worker " + name() + " is shutting down"));
  }
}

void Worker::interrupt(const std::string& why) {
  if (interrupted_.exchange(true)) return;
  const Error error(ErrorKind::cancelled, why);
  for (auto& call : pending_.take_all(kNoWorker)) {
    undo(call);
    call.promise.fail(Error(error).crossing("call of " + call.caller.label + " from " + name()));
  }
  for (auto& added : extensions_) added.extension->interrupted(error);
}

void Worker::disconnect() {
  stop();
  transport_.reset();
}

void Worker::set_transport(std::unique_ptr<net::Transport> transport) {
  transport_ = std::move(transport);
  links_.set_transport(*transport_);
}
void Worker::add_service(const std::string& name, Handler handler, bool takes_unplaced) {
  services_[net::method_id(name)] = {name, std::move(handler), takes_unplaced};
}
void Worker::add_actor_method(const std::string& name, ActorType::Invoke invoke) {
  actor_methods_.push_back({net::method_id(name), name, invoke});
}
void Worker::add_metrics(std::function<void(Metrics&)> collect) { metrics_.push_back(std::move(collect)); }

void Worker::watch(WorkerId id) {
  if (id == this->id()) return;
  try {
    links_.watch(id);
  } catch (const Error& e) {
    lose(id, e);
  }
}

// ---- the end of others

void Worker::lose(WorkerId id, const Error& why) {
  const Traffic::Busy busy(traffic_);
  if (stopped_ || members_.loss(id)) return;
  const std::string name = members_.name_of(id);
  const Error lost = Error(ErrorKind::disconnected,
                           "worker " + name + " was lost: " + members_.leaving(id).value_or(why).message())
                         .with_worker(name);
  const bool is_member = members_.find(id).has_value();
  if (is_member && !members_.mark_lost(id, lost)) return;
  links_.drop(id, lost.message());
  for (auto& call : pending_.take_all(id)) {
    undo(call);
    call.promise.fail(Error(lost).crossing("call of " + call.caller.label + " from " + this->name()));
  }
  for (auto& call : incoming_.of(id)) call->cancel();
  if (!is_member) return;  // nobody holds anything of one that has not joined, and it may come again
  for (auto& whole : late_arguments_.lost(id, lost)) enter(std::move(whole));
  for (auto& added : extensions_) added.extension->worker_lost(id, lost);
  std::vector<LossListener> listeners;
  {
    Lock lock(lost_mutex_);
    listeners = on_lost_;
  }
  for (auto& listener : listeners)
    if (!listener.gone()) listener.told(id, lost);
}

void Worker::on_lost(std::function<void(WorkerId, const Error&)> f) {
  Lock lock(lost_mutex_);
  on_lost_.push_back({std::move(f), {}});
}

void Worker::on_lost(std::weak_ptr<const void> owner, std::function<void(WorkerId, const Error&)> f) {
  Lock lock(lost_mutex_);
  std::erase_if(on_lost_, [](const LossListener& listener) { return listener.gone(); });
  on_lost_.push_back({std::move(f), std::move(owner)});
}

// ---- actors

const ActorType& Worker::type(const std::string& name) const {
  for (const auto& t : options_.hosting)
    if (t->name == name) return *t;
  if (const auto known = find_type(name)) return *known;  // which stays
  std::set<std::string> names;
  for (const auto& t : options_.hosting) names.insert(t->name);
  for (const auto& t : all_types()) names.insert(t->name);
  std::string list;
  for (const auto& n : names) list += (list.empty() ? "" : ", ") + n;
  throw_invalid("[spawn] the program of worker " + this->name() + " has no actor type " + name +
                "; it has: " + (list.empty() ? "none" : list) +
                " (those that no spawn<T>() mentions are named in hosting<T>())");
}

std::shared_ptr<ActorCell> Worker::make_actor(const ObjectId& id, const std::string& type_name,
                                              uint64_t constructor, ValueList args, uint64_t seed,
                                              std::string path) {
  const ActorType& type = this->type(type_name);
  const auto make = type.constructor(constructor, args.size()).make;
  auto cell = std::make_shared<ActorCell>(as_host_, id, type, seed, std::move(path));
  cell->construct(make, std::move(args));
  return cell;
}

void Worker::add_actor(const std::shared_ptr<ActorCell>& cell) {
  Lock lock(actors_mutex_);
  actors_.emplace(cell->id(), cell);
}

std::shared_ptr<ActorCell> Worker::find_actor(const ObjectId& id) const {
  Lock lock(actors_mutex_);
  auto at = actors_.find(id);
  return at == actors_.end() ? nullptr : at->second;
}

void Worker::release_actor(const ObjectId& id) {
  std::shared_ptr<ActorCell> cell;
  {
    Lock lock(actors_mutex_);
    auto node = actors_.extract(id);
    if (node.empty()) return;
    cell = std::move(node.mapped());
    if (released_.size() >= prune_released_at_) {
      std::erase_if(released_, [](const auto& c) { return c.expired(); });
      prune_released_at_ = std::max<size_t>(64, 2 * released_.size());
    }
    released_.push_back(cell);
  }
  cell->release();
}

std::vector<std::shared_ptr<ActorCell>> Worker::actors() const {
  Lock lock(actors_mutex_);
  std::vector<std::shared_ptr<ActorCell>> out;
  for (const auto& [id, cell] : actors_) out.push_back(cell);
  return out;
}

std::vector<std::weak_ptr<ActorCell>> Worker::cells() const {
  Lock lock(actors_mutex_);
  std::vector<std::weak_ptr<ActorCell>> out = released_;
  for (const auto& [id, cell] : actors_) out.push_back(cell);
  return out;
}

std::vector<std::string> Worker::actor_labels() const {
  Lock lock(actors_mutex_);
  std::vector<std::string> labels;
  for (const auto& [id, cell] : actors_) labels.push_back(cell->label());
  return labels;
}

Worker::Metrics Worker::metrics() const {
  Metrics m;
  for (const auto& collect : metrics_) collect(m);
  return m;
}

}  // namespace troupe::internal::actors
