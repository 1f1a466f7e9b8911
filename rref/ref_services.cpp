// What one reference table asks of another, and the end of workers.
#include "rref/ref_table.h"

namespace troupe::internal::rref {
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

// An actor that is in the table of objects, and being made: its constructor may refer to it already.
void RefTable::create(const ObjectId& id, const std::string& type, uint64_t constructor, ValueList args,
                      const std::string& name, uint64_t seed) {
  HandlePtr nameless;  // let go after the lock
  std::shared_ptr<actors::ActorCell> cell;
  bool named = false;
  try {
    if (!name.empty()) give_name(name, id, type), named = true;
    cell = worker().make_actor(id, type, constructor, std::move(args), seed);
  } catch (...) {
    std::lock_guard lock(mutex_);
    const Error why = current_error();
    failed_.emplace(id, why);
    if (worker_) worker_->unheard().failed(id, actors::kUnmade, why);
    if (named) nameless = names_.find(name);
    if (nameless && nameless->id() == id) names_.drop(worker_->name(), name);
    named = false;
  }
  let_in(id, cell);
  if (named) name_given(name);
}

void RefTable::on_spawn(const Ref<actors::Invocation>& call) {
  ValueList& args = call->call().args;
  if (args.size() != 6 || !args[0].get_if<int64_t>() || !args[1].get_if<std::string>() ||
      !args[2].get_if<int64_t>() || !args[3].get_if<ValueList>() || !args[4].get_if<std::string>() ||
      !args[5].get_if<int64_t>())
    throw_invalid("[rref] malformed spawn message");
  actors::Worker& worker = call->worker();
  const ObjectId id{worker.id(), call->from(), static_cast<uint64_t>(*args[0].get_if<int64_t>())};
  {
    std::lock_guard lock(mutex_);
    if (!owner_.create(id, id.creator)) throw_invalid("[rref] object number given twice");
    creations_.begin(id);
    if (const auto& why = call->call().unplaced) failed_.emplace(id, *why);
  }
  if (call->call().unplaced) {  // its arguments could not be taken in: calls to it fail with the reason
    let_in(id, nullptr);
    return call->complete(Value());
  }
  create(id, *args[1].get_if<std::string>(), static_cast<uint64_t>(*args[2].get_if<int64_t>()),
         std::move(*args[3].get_if<ValueList>()), *args[4].get_if<std::string>(),
         static_cast<uint64_t>(*args[5].get_if<int64_t>()));
  call->complete(Value());
}

// Calls that came before an actor go first; only then it can be found. No cell: a value, or a failure.
void RefTable::let_in(const ObjectId& id, const std::shared_ptr<actors::ActorCell>& cell) {
  for (bool over = false; !over;) {
    std::vector<Ref<actors::Invocation>> waiting;
    bool orphan;
    {
      std::lock_guard lock(mutex_);
      if (!worker_) return;
      if (worker_->members().loss(id.creator)) owner_.give_back(id, id.creator, 1);
      orphan = !owner_.owns(id);  // its creator was lost before, or meanwhile
      waiting = creations_.take(id);
      over = waiting.empty() || orphan || !cell;
      if (over) creations_.made(id);
      if (over && cell) worker_->add_actor(cell);
    }
    if (orphan) release({id});
    for (auto& call : waiting)
      !over && call->call().target == id ? call->worker().deliver(cell, call) : call->worker().dispatch(call);
  }
}

bool RefTable::may_come(const ObjectId& id) const {
  return worker_ && (creations_.making(id) || (id.creator != worker_->id() && creations_.due(id)));
}

bool RefTable::grant(const ObjectId& id, WorkerId holder) {
  return owner_.grant(id, holder) || (!owner_.owns(id) && may_come(id) && owner_.grant_early(id, holder));
}

// The worker that made the object, or one that held it, was lost: that is why it is not here.
std::optional<Error> RefTable::gone_with_worker(const ObjectId& id) const {
  if (!worker_) return std::nullopt;
  const auto why = worker_->members().loss(owner_.lost_holder(id).value_or(id.creator));
  if (!why) return std::nullopt;
  return Error(ErrorKind::disconnected, "[rref] the object of this reference is gone: " + why->message())
      .with_worker(why->worker());
}

Error RefTable::gone(const ObjectId& id) const {
  return gone_with_worker(id).value_or(
      Error(ErrorKind::invalid, "[rref] the object of this reference is gone"));
}

bool RefTable::missing(const Ref<actors::Invocation>& invocation) {
  const ObjectId id = invocation->call().target;
  std::optional<Error> failure;
  KeptPtr value;
  bool waits = false;
  {
    std::lock_guard lock(mutex_);
    if (values_.has(id)) {
      value = values_.get(id, invocation);
      if (!value) return true;
    } else if (auto at = failed_.find(id); at != failed_.end()) {
      failure = at->second;
    } else if (may_come(id)) {
      creations_.wait(id, invocation);
      waits = true;
    } else if (owner_.owns(id)) {
      return false;  // it has come meanwhile
    } else if (failure = gone_with_worker(id); !failure) {
      return false;
    }
  }
  if (value) answer(invocation, value);
  if (failure) {
    if (!invocation->cancelled()) invocation->worker().unheard().heard(id);
    invocation->fail(std::move(*failure));
  }
  if (waits) invocation->worker().watch(id.creator);  // what waits must hear of its end
  return true;
}

void RefTable::on_register(const Ref<actors::Invocation>& call) {
  const ObjectId id = object_of(*call, call->worker().id(), 2);
  bool waits = false;
  {
    std::lock_guard lock(mutex_);
    if (!owner_.grant(id, call->from())) {
      if (owner_.owns(id) || !may_come(id)) throw gone(id);
      creations_.wait(id, call);
      waits = true;
    }
  }
  if (waits) return call->worker().watch(id.creator);
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
  std::vector<Pin> over;  // let go after the lock
  {
    std::lock_guard lock(mutex_);
    for (const Value& pin : call->call().args) {
      if (!pin.get_if<int64_t>()) throw_invalid("[rref] malformed reference message");
      const auto at = pins_.find(static_cast<uint64_t>(*pin.get_if<int64_t>()));
      if (at == pins_.end() || at->second.to != call->from()) continue;
      over.push_back(std::move(at->second));
      pins_.erase(at);
    }
  }
  call->complete(Value());
}

// ---- the end of others, and of this worker

void RefTable::lost(WorkerId id, const Error& why) {
  std::vector<ObjectId> dead;
  std::vector<Pin> pins;
  std::vector<Ref<actors::Invocation>> orphans, lookups;
  {
    std::lock_guard lock(mutex_);
    lookups = names_.lose(id);
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
    orphans = creations_.lose(id);
  }
  for (auto& call : orphans) call->fail(Error(why));
  release(dead);
}

void RefTable::stop() {
  std::unordered_map<uint64_t, Pin> pins;  // let go after the lock
  decltype(creations_) creations;
  decltype(values_) values;
  NameTable names;
  std::lock_guard lock(mutex_);
  worker_ = nullptr;
  pins.swap(pins_);
  std::swap(creations, creations_);
  std::swap(values, values_);
  std::swap(names, names_);
}

}  // namespace troupe::internal::rref
