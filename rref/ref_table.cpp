#include "rref/ref_table.h"

#include "actors/codec.h"
#include "core/log.h"

namespace troupe::rref {
namespace {

constexpr const char* kSpawn = "ref.spawn";         // creator to owner: number, type, arguments
constexpr const char* kRegister = "ref.register";   // holder to owner: creator, number
constexpr const char* kGiveBack = "ref.give_back";  // holder to owner: creator, number, grants
constexpr const char* kUnpin = "ref.unpin";         // receiver to sender: pin

Value number(uint64_t n) { return Value(static_cast<int64_t>(n)); }

// "creator, number" at the front of a service's arguments, as an object of this worker.
ObjectId object_of(const actors::Invocation& call, WorkerId self, size_t fields) {
  const ValueList& args = const_cast<actors::Invocation&>(call).call().args;
  if (args.size() != fields || !args[0].get_if<int64_t>() || !args[1].get_if<int64_t>())
    throw_invalid("[rref] malformed reference message");
  return {self, static_cast<WorkerId>(*args[0].get_if<int64_t>()),
          static_cast<uint64_t>(*args[1].get_if<int64_t>())};
}

}  // namespace

Handle::Handle(std::shared_ptr<RefTable> table, ObjectId id, std::string type)
    : table_(std::move(table)), id_(id), type_(std::move(type)) {}
Handle::~Handle() { table_->dropped(id_); }

// ---- the hook

class RefTable::Hook final : public actors::Interceptor {
 public:
  explicit Hook(std::shared_ptr<RefTable> table) : table_(std::move(table)) {}
  void outgoing_call(const actors::CallerState& caller, net::Call& call) override {
    visit_refs(call.args, [&](RefValue& r) { table_->outgoing(caller.to, r); });
  }
  void call_not_sent(net::Call& call) override {
    visit_refs(call.args, [&](RefValue& r) { table_->not_sent(call.target.owner, r); });
  }
  void incoming_call(actors::Invocation& invocation) override {
    visit_refs(invocation.call().args, [&](RefValue& r) { table_->incoming(invocation.from(), r); });
  }
  void outgoing_reply(actors::Invocation& invocation, net::Reply& reply) override {
    if (!reply.result.ok()) return;
    Value value = std::move(reply.result).value();
    visit_refs(value, [&](RefValue& r) { table_->outgoing(invocation.from(), r); });
    reply.result = Result<Value>(std::move(value));
  }
  void incoming_reply(const actors::CallerState& caller, net::Reply& reply) override {
    if (!reply.result.ok()) return;
    Value value = std::move(reply.result).value();
    visit_refs(value, [&](RefValue& r) { table_->incoming(caller.to, r); });
    reply.result = Result<Value>(std::move(value));
  }
  void worker_lost(WorkerId id, const Error& why) override { table_->lost(id, why); }
  bool missing_object(const Ref<actors::Invocation>& invocation) override {
    return table_->missing(invocation);
  }
  void stop() override { table_->stop(); }
  RefTable& table() { return *table_; }

 private:
  std::shared_ptr<RefTable> table_;
};

std::shared_ptr<RefTable> RefTable::install(actors::Worker& worker) {
  std::shared_ptr<RefTable> table(new RefTable(worker));
  RefTable* t = table.get();
  worker.add_interceptor(std::make_unique<Hook>(table));
  worker.add_service(kSpawn, [t](const auto& call) { t->on_spawn(call); });
  worker.add_service(kRegister, [t](const auto& call) { t->on_register(call); });
  worker.add_service(kGiveBack, [t](const auto& call) { t->on_give_back(call); });
  worker.add_service(kUnpin, [t](const auto& call) { t->on_unpin(call); });
  worker.add_metrics([t](actors::Worker::Metrics& m) {
    std::lock_guard lock(t->mutex_);
    m["owned_objects"] = static_cast<int64_t>(t->owner_.objects());
    m["owned_references"] = static_cast<int64_t>(t->owner_.holders());
    m["borrowed_references"] = static_cast<int64_t>(t->holder_.held());
    m["pending_references"] =
        static_cast<int64_t>(t->holder_.registering() + t->pins_.size() + t->parked_.size());
  });
  return table;
}

actors::Worker& RefTable::worker() {
  std::lock_guard lock(mutex_);
  if (!worker_) throw_error(ErrorKind::cancelled, "[rref] the cluster of this reference has been shut down");
  return *worker_;
}

// ---- making references

HandlePtr RefTable::spawn(WorkerId owner, const std::string& type, ValueList args) {
  actors::Worker& worker = this->worker();
  std::lock_guard order(spawn_mutex_);
  const ObjectId id{owner, worker.id(), worker.next_number()};
  if (owner == worker.id()) {
    std::optional<Error> failure;
    try {
      worker.create_actor(id, type, std::move(args));
    } catch (...) {
      failure = current_error();
    }
    std::lock_guard lock(mutex_);
    owner_.create(id, owner);
    if (failure) failed_.emplace(id, *failure);
    return std::make_shared<Handle>(shared_from_this(), id, type);
  }
  {
    std::lock_guard lock(mutex_);
    holder_.created(id);
  }
  auto handle = std::make_shared<Handle>(shared_from_this(), id, type);
  FrameScope neutral({&worker});
  const auto sent = worker.call_service(
      owner, kSpawn, {number(id.number), Value(type), Value(std::move(args))}, {.one_way = true});
  if (const auto* result = sent.peek(); result && !result->ok()) {
    std::lock_guard lock(mutex_);
    holder_.registered(id, result->error());
  }
  return handle;
}

HandlePtr RefTable::refer(const actors::ActorCell& cell) {
  std::lock_guard lock(mutex_);
  if (!worker_ || !owner_.grant(cell.id(), cell.id().owner))
    throw_invalid("[rref] actor " + cell.label() + " is no longer referred to by anybody");
  return std::make_shared<Handle>(shared_from_this(), cell.id(), cell.type().name);
}

void RefTable::check(const ObjectId& id) {
  std::lock_guard lock(mutex_);
  if (!worker_) throw_error(ErrorKind::cancelled, "[rref] the cluster of this reference has been shut down");
  if (auto why = holder_.failure(id)) throw *why;
}

// ---- references in messages

void RefTable::outgoing(WorkerId to, RefValue& ref) {
  std::lock_guard lock(mutex_);
  if (!worker_ || to == worker_->id()) return;
  if (ref.id.owner == worker_->id()) {
    if (!owner_.grant(ref.id, to))
      throw_invalid("[rref] cannot send a reference to an object that is gone, or to a lost worker");
    ref.pin = 0;
  } else {
    ref.pin = ++last_pin_;
    pins_.emplace(ref.pin, Pin{ref.hold, to});
  }
  ref.sender = worker_->id();
}

void RefTable::not_sent(WorkerId to, RefValue& ref) {
  std::vector<ObjectId> dead;
  Pin pin;  // let go after the lock
  {
    std::lock_guard lock(mutex_);
    if (!worker_ || to == worker_->id()) return;
    if (ref.pin) {
      if (auto node = pins_.extract(ref.pin); !node.empty()) pin = std::move(node.mapped());
    } else if (owner_.give_back(ref.id, to, 1)) {
      dead.push_back(ref.id);
    }
  }
  release(dead);
}

void RefTable::incoming(WorkerId from, RefValue& ref) {
  HolderActions actions;
  {
    std::lock_guard lock(mutex_);
    if (!worker_ || from == worker_->id()) return;  // a local call brings its handle along
    if (ref.id.owner == worker_->id()) {
      if (ref.pin) actions.unpins.push_back({from, ref.pin});
      if (!owner_.grant(ref.id, worker_->id()))
        throw_invalid("[rref] a reference came back to an object that is gone");
    } else {
      actions = holder_.imported(ref.id, from, ref.pin);
    }
    ref.hold = std::make_shared<Handle>(shared_from_this(), ref.id, ref.type);
  }
  perform(ref.id, std::move(actions));
}

void RefTable::dropped(const ObjectId& id) {
  HolderActions actions;
  bool dead = false;
  {
    std::lock_guard lock(mutex_);
    if (!worker_) return;
    if (id.owner == worker_->id())
      dead = owner_.give_back(id, id.owner, 1);
    else
      actions = holder_.dropped(id);
  }
  if (dead) release({id});
  perform(id, std::move(actions));
}

void RefTable::perform(const ObjectId& id, HolderActions actions) {
  for (const Unpin& u : actions.unpins) notify(u.to, kUnpin, {number(u.pin)});
  if (actions.give_back)
    notify(id.owner, kGiveBack, {number(id.creator), number(id.number), number(actions.give_back)});
  if (!actions.register_at_owner) return;
  actors::Worker& worker = this->worker();
  FrameScope neutral({&worker});
  worker.call_service(id.owner, kRegister, {number(id.creator), number(id.number)})
      .on_ready([self = shared_from_this(), id](const Result<Value>& r) {
        HolderActions next;
        {
          std::lock_guard lock(self->mutex_);
          if (!self->worker_) return;
          next = self->holder_.registered(id, r.ok() ? std::nullopt : std::optional(r.error()));
        }
        self->perform(id, std::move(next));
      });
}

// Reference messages have no part in the call, context and deadline that happen to be active.
void RefTable::notify(WorkerId to, const char* service, ValueList args) {
  actors::Worker* worker;
  {
    std::lock_guard lock(mutex_);
    worker = worker_;
  }
  if (!worker) return;
  FrameScope neutral({worker});
  (void)worker->call_service(to, service, std::move(args),
                             {.one_way = true});  // a lost peer needs no message
}

void RefTable::release(const std::vector<ObjectId>& ids) {
  for (const ObjectId& id : ids) {
    actors::Worker* worker;
    {
      std::lock_guard lock(mutex_);
      failed_.erase(id);
      worker = worker_;
    }
    if (worker) worker->release_actor(id);
  }
}

// ---- services

void RefTable::on_spawn(const Ref<actors::Invocation>& call) {
  ValueList& args = call->call().args;
  if (args.size() != 3 || !args[0].get_if<int64_t>() || !args[1].get_if<std::string>() ||
      !args[2].get_if<ValueList>())
    throw_invalid("[rref] malformed spawn message");
  actors::Worker& worker = call->worker();
  const ObjectId id{worker.id(), call->from(), static_cast<uint64_t>(*args[0].get_if<int64_t>())};
  std::optional<Error> failure;
  try {
    worker.create_actor(id, *args[1].get_if<std::string>(), std::move(*args[2].get_if<ValueList>()));
  } catch (...) {
    failure = current_error();
  }
  std::vector<Ref<actors::Invocation>> waiting;
  bool orphan = false;
  {
    std::lock_guard lock(mutex_);
    owner_.create(id, id.creator);
    if (failure) failed_.emplace(id, *failure);
    last_spawned_[id.creator] = id.number;
    if (auto node = parked_.extract(id); !node.empty()) waiting = std::move(node.mapped());
    orphan = worker.members().loss(id.creator).has_value() && owner_.give_back(id, id.creator, 1);
  }
  if (orphan) release({id});
  for (auto& w : waiting) worker.dispatch(w);
  call->complete(Value());
}

bool RefTable::not_yet_created(const ObjectId& id) const {
  if (!worker_ || worker_->members().loss(id.creator) || id.creator == worker_->id()) return false;
  auto at = last_spawned_.find(id.creator);
  return at == last_spawned_.end() || id.number > at->second;
}

bool RefTable::missing(const Ref<actors::Invocation>& invocation) {
  const ObjectId id = invocation->call().target;
  std::optional<Error> failure;
  {
    std::lock_guard lock(mutex_);
    if (auto at = failed_.find(id); at != failed_.end()) {
      failure = at->second;
    } else {
      if (!not_yet_created(id)) return false;
      parked_[id].push_back(invocation);
    }
  }
  if (failure) invocation->fail(std::move(*failure));
  return true;
}

void RefTable::on_register(const Ref<actors::Invocation>& call) {
  const ObjectId id = object_of(*call, call->worker().id(), 2);
  {
    std::lock_guard lock(mutex_);
    if (!owner_.grant(id, call->from())) {
      if (!not_yet_created(id)) throw_invalid("[rref] the object of this reference is gone");
      parked_[id].push_back(call);
      return;
    }
  }
  call->complete(Value());
}

void RefTable::on_give_back(const Ref<actors::Invocation>& call) {
  const ObjectId id = object_of(*call, call->worker().id(), 3);
  const auto* count = call->call().args[2].get_if<int64_t>();
  if (!count || *count <= 0) throw_invalid("[rref] malformed reference message");
  bool dead;
  {
    std::lock_guard lock(mutex_);
    dead = owner_.give_back(id, call->from(), static_cast<uint64_t>(*count));
  }
  if (dead) release({id});
  call->complete(Value());
}

void RefTable::on_unpin(const Ref<actors::Invocation>& call) {
  Pin pin;  // let go after the lock
  {
    std::lock_guard lock(mutex_);
    const auto& args = call->call().args;
    if (args.size() != 1 || !args[0].get_if<int64_t>()) throw_invalid("[rref] malformed reference message");
    auto at = pins_.find(static_cast<uint64_t>(*args[0].get_if<int64_t>()));
    if (at != pins_.end() && at->second.to == call->from()) pin = std::move(at->second), pins_.erase(at);
  }
  call->complete(Value());
}

// ---- the end of others, and of this worker

void RefTable::lost(WorkerId id, const Error& why) {
  std::vector<ObjectId> dead;
  std::vector<Pin> pins;
  std::vector<Ref<actors::Invocation>> orphans;
  {
    std::lock_guard lock(mutex_);
    dead = owner_.lose(id);
    holder_.owner_lost(id, why);
    for (auto at = pins_.begin(); at != pins_.end();) {
      if (at->second.to != id) {
        ++at;
        continue;
      }
      pins.push_back(std::move(at->second));
      at = pins_.erase(at);
    }
    for (auto at = parked_.begin(); at != parked_.end();) {
      if (at->first.creator != id) {
        ++at;
        continue;
      }
      orphans.insert(orphans.end(), at->second.begin(), at->second.end());
      at = parked_.erase(at);
    }
  }
  for (auto& call : orphans) call->fail(Error(why));
  release(dead);
}

void RefTable::stop() {
  std::unordered_map<uint64_t, Pin> pins;  // let go after the lock
  std::map<ObjectId, std::vector<Ref<actors::Invocation>>> parked;
  std::lock_guard lock(mutex_);
  worker_ = nullptr;
  pins.swap(pins_);
  parked.swap(parked_);
}

}  // namespace troupe::rref
