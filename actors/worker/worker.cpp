#include "actors/worker/worker.h"

#include <set>

#include "actors/worker/guests.h"
#include "actors/worker/open_calls.h"
#include "actors/worker/reports.h"
#include "actors/worker/traffic_service.h"
#include "core/base/fork.h"
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
      calls_(*this),
      parked_(*options_.runtime, traffic_,
              [this](net::Connection& connection, net::Packet&& packet) {
                if (!members_.loss(connection.peer().id)) take_in(connection, std::move(packet));
              }),
      canceller_(std::make_shared<Canceller>([this](uint64_t id) { calls_.give_up(id); })),
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
                                 net::Reply& reply) { return late_calls_.pass_on(how, call, result, reply); },
               .late_arguments = late_calls_.arguments()} {
  set_grad_mode_note(note_of_grad_mode);
  add_extension(std::make_unique<Guests>(members_, actors_,
                                         [this](WorkerId guest, const Error& why) { lose(guest, why); }));
  install_traffic(*this);
  install_reports(*this);
  install_open_calls(*this);
  late_calls_.install();
  add_metrics([this](Metrics& m) {
    m["actors"] = live_cells_.count();
    m["threads"] = options_.runtime->threads();
    m["timeout_ms"] = std::chrono::duration_cast<std::chrono::milliseconds>(timeout()).count();
    m["pending_calls"] = static_cast<int64_t>(calls_.pending().size());
    const FlowControl::Sums flow = calls_.pending().in_flight();
    m["in_flight_calls"] = static_cast<int64_t>(flow.messages);
    m["in_flight_bytes"] = static_cast<int64_t>(flow.bytes);
    m["unanswered_calls"] = static_cast<int64_t>(incoming_.size());
    m["parked_packets"] = static_cast<int64_t>(parked_.count());
    const Lock lock(transport_mutex_);
    if (!transport_) return;
    const net::SentCounts sent = transport_->sent();
    for (size_t i = 0; i < sent.size(); ++i) {
      const std::string by = std::string("_by_") + net::kSentBy[i] + "_sent";
      m["tensor_messages" + by] = sent[i].messages;
      m["tensor_bytes" + by] = sent[i].bytes;
    }
  });
  status_.serve();
  if (options_.timer_thread) timer_.start([this] { return tick(); });
}

Worker::~Worker() { end(); }

void Worker::end() {
  if (ended_.exchange(true)) return;
  end_refused_child("the end of a worker");
  disconnect();
  canceller_->close();
  incoming_.clear();
  late_calls_.clear();
  for (auto& added : extensions_) added.extension->stop();
  parked_.finish();
  actors_.release_all(Error(ErrorKind::cancelled, "[call] worker " + name() + " is shutting down"));
  live_cells_.wait_until_none();
  unheard_.end();
  timer_.stop();
}

void Worker::stop() {
  if (stopped_.exchange(true)) return;
  links_.stop();
  calls_.end_all(kNoWorker, [this](const PendingCall& call) {
    return Error(ErrorKind::cancelled,
                 "[call] " + call.caller.label + ": worker " + name() + " is shutting down");
  });
}

void Worker::interrupt(const std::string& why) {
  if (interrupted_.exchange(true)) return;
  const Error error(ErrorKind::cancelled, why);
  calls_.end_all(kNoWorker,
                 [&](const PendingCall& call) { return Error(error).crossing(calls_.crossing(call)); });
  for (auto& added : extensions_) added.extension->interrupted(error);
}

void Worker::disconnect() {
  stop();
  std::unique_ptr<net::Transport> gone;
  const Lock lock(transport_mutex_);
  gone = std::move(transport_);
}

void Worker::set_transport(std::unique_ptr<net::Transport> transport) {
  links_.set_transport(*transport);
  carries_devices_ = transport->carries_devices();
  const Lock lock(transport_mutex_);
  transport_ = std::move(transport);
}
net::Transport& Worker::transport() {
  const Lock lock(transport_mutex_);
  return *transport_;
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

void Worker::set_timeout(Duration timeout) {
  if (timeout.count() < 0)
    throw_invalid("[cluster] a timeout of " + std::to_string(timeout.count()) +
                  " ns; expected zero (none) or more");
  timeout_ns_ = timeout.count();
}

net::DevicePlacing Worker::placing(WorkerId to) const {
  net::DevicePlacing placing{.in_memory = carries_devices_, .ways = is_guest(to) ? nullptr : ways_, .to = to};
  if (options_.device_maps.empty()) return placing;
  const auto found = options_.device_maps.find(members_.name_of(to));
  if (found != options_.device_maps.end()) placing.map = &found->second;
  return placing;
}

// ---- calls

void Worker::send(WorkerId to, net::Message message) {
  const auto beside = std::move(message.beside);
  links_.send(to, std::move(message));
  if (beside) beside->follow();
}

Future<Value> Worker::call(const ObjectId& target, std::string label, uint64_t method, ValueList args,
                           CallOptions options) {
  return calls_.call(target, std::move(label), method, std::move(args), std::move(options));
}

Future<Value> Worker::call_service(WorkerId to, const std::string& service, ValueList args,
                                   CallOptions options) {
  return call(ObjectId{to, kNoWorker, 0}, service, net::method_id(service), std::move(args),
              std::move(options));
}

void Worker::notify_started(WorkerId caller, uint64_t call) {
  if (caller == id()) return calls_.started(call, caller);
  try {
    links_.send(caller, net::encode(net::Started{call}));
  } catch (const Error&) {  // it is gone
  }
}

// Others wait for threads that run callbacks: calls made there never block.
CallFrame Worker::callback_frame() {
  CallFrame at = frame();
  at.callback = true;
  return at;
}

TimePoint Worker::tick() {
  CallFrameScope scope(callback_frame());
  return calls_.expire();
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
  calls_.end_all(id, [&](const PendingCall& call) { return Error(lost).crossing(calls_.crossing(call)); });
  for (auto& call : incoming_.of(id)) call->cancel();
  if (!is_member) return;  // nobody holds anything of one that has not joined, and it may come again
  late_calls_.lost(id, lost);
  for (auto& added : extensions_) added.extension->worker_lost(id, lost);
  on_lost_.tell(id, lost);
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

Worker::Metrics Worker::metrics() const {
  Metrics m;
  for (const auto& collect : metrics_) collect(m);
  return m;
}

}  // namespace troupe::internal::actors
