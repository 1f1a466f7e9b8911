// What one reference table asks of another, and the end of workers.
#include "actors/worker/guests.h"
#include "rref/ref_messages.h"
#include "rref/ref_table.h"

namespace troupe::internal::rref {

// An actor that is in the table of objects, and being made: its constructor may refer to it already.
void RefTable::create(const ObjectId& id, const std::string& type, uint64_t constructor, ValueList args,
                      const std::string& name, uint64_t seed, std::string path) {
  HandlePtr nameless;  // let go after the lock
  std::shared_ptr<actors::ActorCell> cell;
  bool named = false;
  try {
    if (!name.empty()) give_name(name, id, type), named = true;
    cell = worker().make_actor(id, type, constructor, std::move(args), seed, std::move(path));
  } catch (...) {
    Lock lock(mutex_);
    const Error why = current_error();
    failed_.emplace(id, why);
    if (worker_) worker_->unheard().failed(id, actors::kUnmade, why);
    if (named) nameless = names_.find(name);
    if (nameless && nameless->id() == id) names_.drop(worker_->name(), name);
    named = false;
  }
  admit(id, cell);
  if (named) name_given(name);
}

void RefTable::on_spawn(actors::Invocation& call, uint64_t number, const std::string& type,
                        uint64_t constructor, ValueList args, const std::string& name, uint64_t seed,
                        std::string path) {
  const ObjectId id{call.worker().id(), call.from(), number};
  const auto& unplaced = call.call().unplaced;  // its arguments, so calls to it fail with the reason
  {
    Lock lock(mutex_);
    if (!owner_.create(id, id.creator)) throw_invalid("[rref] object number given twice");
    creations_.begin(id);
    if (unplaced) failed_.emplace(id, *unplaced);
  }
  unplaced ? admit(id, nullptr) : create(id, type, constructor, std::move(args), name, seed, std::move(path));
}

// Calls that came before an actor go first; only then it can be found. No cell: a value, or a failure.
void RefTable::admit(const ObjectId& id, const std::shared_ptr<actors::ActorCell>& cell) {
  for (bool over = false; !over;) {
    std::vector<Ref<actors::Invocation>> waiting;
    bool orphan;
    {
      Lock lock(mutex_);
      if (!worker_) return;
      if (worker_->members().loss(id.creator)) owner_.release_grants(id, id.creator, 1);
      orphan = !owner_.owns(id);  // its creator was lost before, or meanwhile
      waiting = creations_.take(id);
      over = waiting.empty() || orphan || !cell;
      if (over) creations_.made(id);
      if (over && cell) worker_->actors().add(cell);
    }
    if (orphan) release({id});
    for (auto& call : waiting)
      !over && call->call().target == id ? call->worker().deliver(cell, call) : call->worker().dispatch(call);
  }
}

bool RefTable::may_come(const ObjectId& id) const {
  return worker_ && (creations_.constructing(id) || (id.creator != worker_->id() && creations_.pending(id)));
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
  StoredResultPtr value;
  bool waits = false;
  {
    Lock lock(mutex_);
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

void RefTable::on_register(const Ref<actors::Invocation>& call, const ObjectId& id) {
  bool waits = false;
  {
    Lock lock(mutex_);
    if (!owner_.grant(id, call->from())) {
      if (owner_.owns(id) || !may_come(id)) throw gone(id);
      creations_.wait(id, call);
      waits = true;
    }
  }
  if (waits) return call->worker().watch(id.creator);
  kRegister.answer(*call, {});
}

void RefTable::on_release_grants(WorkerId from, const ObjectId& id, uint64_t grants) {
  if (static_cast<int64_t>(grants) <= 0)
    throw_invalid("ref.give_back argument 3: expected 1 or more, got " + std::to_string(grants));
  bool dead;
  {
    Lock lock(mutex_);
    dead = owner_.release_grants(id, from, grants);
  }
  if (dead) release({id});
}

void RefTable::on_unpin(WorkerId from, const std::vector<uint64_t>& pins) {
  std::vector<Pin> over;  // let go after the lock
  Lock lock(mutex_);
  for (const uint64_t pin : pins) {
    const auto at = pins_.find(pin);
    if (at == pins_.end() || at->second.to != from) continue;
    over.push_back(std::move(at->second));
    pins_.erase(at);
  }
}

// ---- the end of others, and of this worker

void RefTable::lost(WorkerId id, const Error& why) {
  std::vector<ObjectId> dead;
  std::vector<Pin> pins;
  std::vector<Ref<actors::Invocation>> orphans, lookups;
  {
    Lock lock(mutex_);
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
  if (actors::is_guest(id)) end_all(why, id);
}

void RefTable::stop() {
  std::unordered_map<uint64_t, Pin> pins;  // let go after the lock
  decltype(creations_) creations;
  decltype(values_) values;
  NameTable names;
  Lock lock(mutex_);
  worker_ = nullptr;
  pins.swap(pins_);
  std::swap(creations, creations_);
  std::swap(values, values_);
  std::swap(names, names_);
}

}  // namespace troupe::internal::rref
