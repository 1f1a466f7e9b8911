// What one reference table asks of another, and the end of workers.
#include "rref/ref_table.h"

namespace troupe::rref {
namespace {

// "creator, number" at the front of a service's arguments, as an object of this worker.
ObjectId object_of(const actors::Invocation& call, WorkerId self, size_t fields) {
  const ValueList& args = const_cast<actors::Invocation&>(call).call().args;
  if (args.size() != fields || !args[0].get_if<int64_t>() || !args[1].get_if<int64_t>())
    throw_invalid("[rref] malformed reference message");
  return {self, static_cast<WorkerId>(*args[0].get_if<int64_t>()),
          static_cast<uint64_t>(*args[1].get_if<int64_t>())};
}

}  // namespace

// An actor that is in the table of objects: its constructor may refer to it already.
void RefTable::create(const ObjectId& id, const std::string& type, ValueList args) {
  try {
    worker().create_actor(id, type, std::move(args));
  } catch (...) {
    std::lock_guard lock(mutex_);
    failed_.emplace(id, current_error());
  }
}

void RefTable::on_spawn(const Ref<actors::Invocation>& call) {
  ValueList& args = call->call().args;
  if (args.size() != 3 || !args[0].get_if<int64_t>() || !args[1].get_if<std::string>() ||
      !args[2].get_if<ValueList>())
    throw_invalid("[rref] malformed spawn message");
  actors::Worker& worker = call->worker();
  const ObjectId id{worker.id(), call->from(), static_cast<uint64_t>(*args[0].get_if<int64_t>())};
  {
    std::lock_guard lock(mutex_);
    if (!owner_.create(id, id.creator)) throw_invalid("[rref] object number given twice");
  }
  create(id, *args[1].get_if<std::string>(), std::move(*args[2].get_if<ValueList>()));
  std::vector<Ref<actors::Invocation>> waiting;
  bool orphan = false;
  {
    std::lock_guard lock(mutex_);
    last_spawned_[id.creator] = id.number;
    if (auto node = parked_.extract(id); !node.empty()) waiting = std::move(node.mapped());
    if (worker.members().loss(id.creator)) owner_.give_back(id, id.creator, 1);
    orphan = !owner_.owns(id);  // its creator was lost before, or meanwhile
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
