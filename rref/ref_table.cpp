#include "rref/ref_table.h"

#include <map>
#include <thread>

#include "actors/worker/guests.h"
#include "core/base/fork.h"
#include "core/base/seed_stream.h"
#include "core/graph/copy_on_write.h"
#include "core/graph/node.h"
#include "rref/ref_messages.h"

namespace troupe::internal::rref {

Handle::Handle(std::shared_ptr<RefTable> table, ObjectId id, const std::string& type, std::string path)
    : table_(std::move(table)), id_(id), type_(table_->keep_type(type)), path_(std::move(path)) {}
Handle::~Handle() {
  if (!in_refused_child()) table_->dropped(id_);  // it is the parent's
}

const std::string* RefTable::keep_type(const std::string& type) {
  Lock lock(types_mutex_);
  return &*types_.insert(type).first;
}

// ---- the hook

class RefTable::Hook final : public actors::Interceptor {
 public:
  explicit Hook(std::shared_ptr<RefTable> table) : table_(std::move(table)) {}
  void outgoing_call(const actors::CallerState& caller, net::Call& call) override {
    table_->outgoing_all(caller.to, call.args);
  }
  void call_not_sent(net::Call& call) override {
    visit_refs(call.args, [&](RefValue& r) { table_->not_sent(call.target.owner, r); });
  }
  void arrived(WorkerId from, net::Packet& packet) override {
    std::vector<Unpin> unpins;  // one message for all references of this one
    const auto take = [&](RefValue& r) { table_->incoming(from, r, unpins); };
    if (auto* call = std::get_if<net::Call>(&packet)) {
      if (call->store_as) table_->expect_value(from, call->store_as);
      visit_refs(call->args, take);
    } else if (auto* reply = std::get_if<net::Reply>(&packet)) {
      in_result(*reply, [&](Value& v) { visit_refs(v, take); });
    }
    table_->unpin(unpins);
  }
  void outgoing_reply(actors::Invocation& invocation, net::Reply& reply) override {
    in_result(reply, [&](Value& v) { table_->outgoing_all(invocation.from(), v); });
  }
  void reply_not_sent(actors::Invocation& invocation, net::Reply& reply) override {
    in_result(reply,
              [&](Value& v) { visit_refs(v, [&](RefValue& r) { table_->not_sent(invocation.from(), r); }); });
  }
  void store_result(actors::Invocation& call, const Result<Value>& result) override {
    table_->store_result(call, result);
  }
  std::optional<Value> keep_result(actors::Invocation& call, const Value& result) override {
    return table_->keep_result(call, result);
  }
  void worker_lost(WorkerId id, const Error& why) override { table_->lost(id, why); }
  bool missing_object(const Ref<actors::Invocation>& invocation) override {
    return table_->missing(invocation);
  }
  void stop() override { table_->stop(); }
  RefTable& table() { return *table_; }

 private:
  template <class F>
  static void in_result(net::Reply& reply, F&& f) {
    if (!reply.result.ok()) return;
    Value value = std::move(reply.result).value();
    f(value);
    reply.result = Result<Value>(std::move(value));
  }
  std::shared_ptr<RefTable> table_;
};

static void made() {}
static Value no_value(Actor&, actors::Invocation& call) {
  throw_invalid("[rref] " + call.cell()->label() + " is an actor, not a value: call its methods");
}

std::shared_ptr<RefTable> RefTable::install(actors::Worker& worker) {
  std::shared_ptr<RefTable> table(new RefTable(worker));
  RefTable* t = table.get();
  worker.add_extension(std::make_unique<Hook>(table));
  const WorkerId self = worker.id();
  kSpawn.serve(worker, [t](actors::Invocation& call, uint64_t number, auto&&... made) {
    t->on_spawn(call, number, std::move(made)...);
  });
  kExpect.serve(worker,
                [t](actors::Invocation& call, uint64_t number) { t->expect_value(call.from(), number); });
  kNotCalled.serve(worker, [t, self](actors::Invocation& call, uint64_t number, ErrorKind kind,
                                     const std::string& message, const std::string& lost) {
    t->not_called({self, call.from(), number}, Error(kind, message).with_worker(lost));
  });
  kRegister.serve_later(worker, [t, self](const auto& call, WorkerId creator, uint64_t number) {
    t->on_register(call, {self, creator, number});
  });
  kReleaseGrants.serve(
      worker, [t, self](actors::Invocation& call, WorkerId creator, uint64_t number, uint64_t grants) {
        t->on_release_grants(call.from(), {self, creator, number}, grants);
      });
  kUnpin.serve(worker,
               [t](actors::Invocation& call, const Each<uint64_t>& pins) { t->on_unpin(call.from(), pins); });
  kSetName.serve_later(worker, [t, self](const auto& call, WorkerId creator, uint64_t number,
                                         const std::string& type, const std::string& name) {
    t->on_set_name(call, {self, creator, number}, type, name);
  });
  kDropName.serve(worker, [t, &worker](const std::string& name) { t->on_drop_name(worker, name); });
  kLookup.serve_later(worker, [t](const auto& call, const auto&... asked) { t->on_lookup(call, asked...); });
  kRefer.serve(worker, [t, &worker](WorkerId creator, uint64_t number) {
    const auto cell = worker.actors().find({worker.id(), creator, number});
    if (!cell) throw_invalid("[rref] " + worker.name() + " has no such actor any more");
    const HandlePtr found = t->refer(*cell);
    return Value(RefValue{found->id(), found->type(), kNoWorker, 0, found});
  });
  kObjects.serve(worker, [t, &worker](int64_t limit) { return t->objects_here(worker, limit); });
  kNames.serve(worker, [t] { return t->names_here(); });
  actors::serve<kReady, made>(worker);
  actors::serve<kFetch, no_value>(worker);
  worker.add_metrics([t](actors::Worker::Metrics& m) {
    Lock lock(t->mutex_);
    m["owned_objects"] = static_cast<int64_t>(t->owner_.objects());
    m["owned_references"] = static_cast<int64_t>(t->owner_.holders());
    m["owned_values"] = static_cast<int64_t>(t->values_.size());
    m["names"] = static_cast<int64_t>(t->names_.all().size());
    m["borrowed_references"] = static_cast<int64_t>(t->holder_.held());
    m["pending_references"] = static_cast<int64_t>(t->holder_.registering() + t->pins_.size() +
                                                   t->creations_.waiting() + t->owner_.pending());
  });
  return table;
}

std::shared_ptr<RefTable> RefTable::of(actors::Worker& worker) {
  return worker.extension<Hook>()->table().shared_from_this();
}

actors::Worker& RefTable::worker() {
  check_process("rref");
  Lock lock(mutex_);
  if (!worker_) throw_error(ErrorKind::cancelled, "[rref] the cluster of this reference has been shut down");
  return *worker_;
}

// ---- making references

HandlePtr RefTable::spawn(WorkerId owner, const std::string& type, uint64_t constructor, ValueList args,
                          const std::string& name) {
  check_process("spawn");
  actors::Worker& worker = this->worker();
  visit_refs(args, [&](RefValue& r) { check_own(r); });
  visit_tensors(args, [&](Tensor& t) {
    if (!t.defined() || !t.requires_grad()) return;
    if (grad_enabled())
      throw_invalid(
          "[spawn] an argument of the constructor of " + type + " (" + t.summary() +
          ") needs gradients, and none come back from a constructor: detach() it, or pass it in a call");
    t = t.detach();
  });
  const uint64_t seed = current_stream().next();  // of the actor's stream
  std::string path = path_of_next(type);
  if (owner == worker.id()) {
    visit_tensors(args, internal::own_elements);
    const ObjectId id{owner, owner, worker.next_number()};
    {
      Lock lock(mutex_);
      owner_.create(id, owner);
      creations_.begin(id);
    }
    auto handle = std::make_shared<Handle>(shared_from_this(), id, type, path);
    create(id, type, constructor, std::move(args), name, seed, std::move(path));
    return handle;
  }
  std::lock_guard order(spawn_mutex_);
  const ObjectId id{owner, worker.id(), worker.next_number()};
  {
    Lock lock(mutex_);
    if (detached_) throw_error(ErrorKind::cancelled, "[spawn] the cluster has been shut down");
    holder_.created(id);
  }
  auto handle = std::make_shared<Handle>(shared_from_this(), id, type, path);
  if (const auto why = kSpawn.tell(worker, owner, id.number, type, constructor, std::move(args), name, seed,
                                   std::move(path))) {
    Lock lock(mutex_);
    holder_.not_made(id, *why);
    worker.unheard().failed(id, actors::kUnmade, *why);
  }
  return handle;
}

RefTable::SpawnAs::SpawnAs(RefTable& table, std::vector<std::string> paths)
    : table_(table), random_(current_stream().position()) {
  std::ranges::reverse(paths);
  Lock lock(table_.mutex_);
  table_.paths_[std::this_thread::get_id()] = std::move(paths);
}
RefTable::SpawnAs::~SpawnAs() {
  current_stream().set_position(random_);
  Lock lock(table_.mutex_);
  table_.paths_.erase(std::this_thread::get_id());
}

std::string RefTable::path_of_next(const std::string& kind) {
  {
    Lock lock(mutex_);
    if (const auto as = paths_.find(std::this_thread::get_id()); as != paths_.end()) {
      std::string path = as->second.back();
      if (as->second.size() > 1) as->second.pop_back();
      return path;
    }
  }
  if (const auto cell = frame().actor)
    return cell->path() + "/" + kind + "#" + std::to_string(cell->count(kind));
  const actors::Worker& worker = this->worker();
  const std::string by = worker.id() == 0 ? "" : worker.name() + ":";
  Lock lock(mutex_);
  return by + kind + "#" + std::to_string(counts_[kind]++);
}

void RefTable::count_anew() {
  Lock lock(mutex_);
  counts_.clear();
}

HandlePtr RefTable::refer(const actors::ActorCell& cell) {
  Lock lock(mutex_);
  if (!worker_ || !owner_.grant(cell.id(), cell.id().owner))
    throw_invalid("[rref] actor " + cell.label() + " is no longer referred to by anybody");
  return std::make_shared<Handle>(shared_from_this(), cell.id(), cell.type().name);
}

void RefTable::detach() {
  std::vector<ObjectId> dead;
  std::vector<std::pair<ObjectId, HolderActions>> held;
  {
    Lock lock(mutex_);
    if (!worker_ || detached_) return;
    detached_ = true;
    dead = owner_.lose(worker_->id());
    held = holder_.detach();
  }
  release(dead);
  for (auto& [id, actions] : held) perform(id, std::move(actions));
}

// ---- references in messages

// Numbers mean nothing elsewhere: there, another object may have the same.
void RefTable::check_own(const RefValue& ref) const {
  if (ref.hold && &std::static_pointer_cast<Handle>(ref.hold)->table() != this)
    throw_invalid("[rref] a reference to " + ref.type +
                  " belongs to another cluster than the call: it can be called, but not sent in this one; "
                  "spawn the actor in the cluster that is to use it");
}

template <class Tree>
void RefTable::outgoing_all(WorkerId to, Tree& tree) {
  size_t done = 0;
  try {
    visit_refs(tree, [&](RefValue& r) {
      check_own(r);
      outgoing(to, r);
      ++done;
    });
  } catch (...) {
    visit_refs(tree, [&](RefValue& r) {
      if (done) --done, not_sent(to, r);
    });
    throw;
  }
}

void RefTable::outgoing(WorkerId to, RefValue& ref) {
  Lock lock(mutex_);
  if (!worker_ || to == worker_->id()) return;
  if (ref.id.owner == worker_->id()) {
    if (!grant(ref.id, to))
      throw worker_->members()
          .loss(to)
          .value_or(gone(ref.id))
          .crossing("sending of a reference to " + ref.type);
    ref.pin = 0;
  } else {
    if (auto why = holder_.unshareable(ref.id)) {
      worker_->unheard().heard(ref.id);
      throw std::move(*why).crossing("sending of a reference to " + ref.type);
    }
    ref.pin = ++last_pin_;
    pins_.emplace(ref.pin, Pin{ref.hold, to});
  }
  ref.sender = worker_->id();
}

void RefTable::not_sent(WorkerId to, RefValue& ref) {
  std::vector<ObjectId> dead;
  Pin pin;  // let go after the lock
  {
    Lock lock(mutex_);
    if (!worker_ || to == worker_->id()) return;
    if (ref.pin) {
      if (auto node = pins_.extract(ref.pin); !node.empty()) pin = std::move(node.mapped());
    } else if (owner_.release_grants(ref.id, to, 1)) {
      dead.push_back(ref.id);
    }
  }
  release(dead);
}

void RefTable::incoming(WorkerId from, RefValue& ref, std::vector<Unpin>& unpins) {
  HolderActions actions;
  {
    Lock lock(mutex_);
    if (!worker_ || from == worker_->id()) return;  // a local call brings its handle along
    if (ref.id.owner == worker_->id()) {
      if (ref.pin) unpins.push_back({from, ref.pin});
      grant(ref.id, worker_->id());  // if the object is gone, the calls of this reference say so
    } else {
      actions = holder_.imported(ref.id, from, ref.pin);
      unpins.insert(unpins.end(), actions.unpins.begin(), actions.unpins.end());
      actions.unpins.clear();
      if (detached_) actions.release_grants = holder_.dropped(ref.id).release_grants;
    }
    ref.hold = std::make_shared<Handle>(shared_from_this(), ref.id, ref.type);
  }
  perform(ref.id, std::move(actions));
}

void RefTable::dropped(const ObjectId& id) {
  HolderActions actions;
  bool dead = false;
  {
    Lock lock(mutex_);
    if (!worker_ || detached_) return;
    if (id.owner == worker_->id())
      dead = owner_.release_grants(id, id.owner, 1);
    else
      actions = holder_.dropped(id);
    if (worker_->unheard().any() && id.owner != worker_->id() && !holder_.failure(id))
      worker_->unheard().gone(id);
  }
  if (dead) release({id});
  perform(id, std::move(actions));
}

void RefTable::unpin(const std::vector<Unpin>& unpins) {
  std::map<WorkerId, Each<uint64_t>> pins;
  for (const Unpin& u : unpins) pins[u.to].push_back(u.pin);
  for (auto& [to, list] : pins)
    if (actors::Worker* worker = living_worker()) kUnpin.tell(*worker, to, std::move(list));
}

void RefTable::perform(const ObjectId& id, HolderActions actions) {
  unpin(actions.unpins);
  if (actors::Worker* worker = actions.release_grants ? living_worker() : nullptr)
    kReleaseGrants.tell(*worker, id.owner, id.creator, id.number, actions.release_grants);
  if (!actions.register_at_owner) return;
  actors::Worker& worker = this->worker();
  CallFrameScope neutral({&worker});  // of the callback
  kRegister.ask(worker, id.owner, id.creator, id.number)
      .on_ready([self = shared_from_this(), id](const Result<Value>& r) {
        HolderActions next;
        {
          Lock lock(self->mutex_);
          if (!self->worker_) return;
          next = self->holder_.registered(id, r.ok() ? std::nullopt : std::optional(r.error()));
        }
        self->perform(id, std::move(next));
      });
}

void RefTable::end(const ObjectId& actor, const Error& why) {
  {
    Lock lock(mutex_);
    if (!worker_ || !owner_.owns(actor)) return;
    failed_.emplace(actor, why);
  }
  worker().actors().release(actor);
}

void RefTable::end_all(const Error& why, WorkerId guest) {
  const bool all = guest == kNoWorker;
  std::unordered_set<ObjectId> ended;
  for (const auto& cell : worker().actors().all())
    if (all || cell->id().creator == guest || cell->path().starts_with(actors::guest_name(guest) + ":"))
      ended.insert(cell->id());
  std::vector<HandlePtr> names;  // let go after the lock
  {
    Lock lock(mutex_);
    if (!worker_) return;
    names =
        names_.drop_all([&](const ObjectId& id) { return all || id.creator == guest || ended.contains(id); });
  }
  for (const ObjectId& id : ended) end(id, why);
}

// Null after stop(). (Peers that are lost need no message: that one could not be sent is nothing to know.)
actors::Worker* RefTable::living_worker() const {
  Lock lock(mutex_);
  return worker_;
}

void RefTable::release(const std::vector<ObjectId>& ids) {
  for (const ObjectId& id : ids) {
    actors::Worker* worker;
    StoredResultPtr value;  // let go after the lock
    bool failed;
    {
      Lock lock(mutex_);
      failed = failed_.erase(id) > 0;
      value = values_.release(id);
      worker = worker_;
    }
    if (!worker) continue;
    if (failed || (value && value->error)) worker->unheard().gone(id);
    worker->actors().release(id);
  }
}

}  // namespace troupe::internal::rref
