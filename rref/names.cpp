// Names of objects: who gives, drops and looks them up. The owner of an object knows its names.
#include "rref/ref_messages.h"
#include "rref/ref_table.h"

namespace troupe::internal::rref {

// ---- asking

Future<void> RefTable::set_name(const Handle& handle, const std::string& name) {
  check_name(name);
  const ObjectId& id = handle.id();
  try {
    check(id);
    return kSetName
        .ask_as("naming of " + handle.type() + " '" + name + "'", worker(), id.owner, id.creator, id.number,
                handle.type(), name)
        .then([](const Value&) {});
  } catch (...) {
    return Future<void>::failed(current_error());
  }
}

Future<void> RefTable::drop_name(const std::string& full) {
  const auto [where, name] = split_name(full);
  actors::Worker& worker = this->worker();
  return kDropName.ask_as("dropping of " + full, worker, worker.members().id_of(where), name)
      .then([](const Value&) {});
}

Future<Value> RefTable::lookup(const std::string& full, const std::string& type, bool wait,
                               std::optional<Duration> timeout) {
  const auto [where, name] = split_name(full);
  actors::Worker& worker = this->worker();
  return kLookup.within(timeout).ask_as("lookup of " + full, worker, worker.members().id_of(where), name,
                                        type, wait);
}

Future<std::map<std::string, std::string>> RefTable::names(WorkerId owner) {
  return kNames.ask(worker(), owner);
}

// ---- on the owner

// Throws if the name is taken.
void RefTable::give_name(const std::string& name, const ObjectId& id, const std::string& type) {
  check_name(name);
  HandlePtr handle;  // if refused, let go after the lock
  Lock lock(mutex_);
  if (!worker_ || !owner_.grant(id, id.owner)) throw gone(id);
  handle = std::make_shared<Handle>(shared_from_this(), id, type);
  names_.give(worker_->name(), name, handle);
}

void RefTable::name_given(const std::string& name) {
  std::vector<Ref<actors::Invocation>> lookups;
  {
    Lock lock(mutex_);
    lookups = names_.arrived(name);
  }
  for (auto& lookup : lookups) lookup->worker().dispatch(lookup);
}

void RefTable::on_set_name(const Ref<actors::Invocation>& call, const ObjectId& id, const std::string& type,
                           const std::string& name) {
  bool waits;
  {
    Lock lock(mutex_);
    waits = !owner_.owns(id) && may_come(id);
    if (waits) creations_.wait(id, call);
  }
  if (waits) return call->worker().watch(id.creator);  // what waits must hear of its end
  give_name(name, id, type);
  name_given(name);
  kSetName.answer(*call, {});
}

void RefTable::on_drop_name(const actors::Worker& worker, const std::string& name) {
  HandlePtr dropped;  // let go after the lock
  Lock lock(mutex_);
  dropped = names_.drop(worker.name(), name);
}

void RefTable::on_lookup(const Ref<actors::Invocation>& call, const std::string& name,
                         const std::string& type, bool wait) {
  HandlePtr found;
  std::vector<Ref<actors::Invocation>> late;  // let go after the lock
  {
    Lock lock(mutex_);
    if (!worker_) return;
    found = names_.find(name);
    if (!found && !wait) throw names_.unknown(worker_->name(), name);
    if (auto why = worker_->members().loss(call->from())) throw *why;  // lost() has been here
    if (!found) late = names_.wait(name, call, worker_->clock().now());
  }
  if (!found) return;
  if (!type.empty() && found->type() != type)
    throw_invalid("[names] " + call->worker().name() + "/" + name + " is a " + found->type() + ", not a " +
                  type);
  kLookup.answer(*call, Value(RefValue{found->id(), found->type(), kNoWorker, 0, found}));
}

std::map<std::string, std::string> RefTable::names_here() const {
  std::map<std::string, std::string> types;
  Lock lock(mutex_);
  for (const auto& [name, ref] : names_.all()) types.emplace(name, ref->type());
  return types;
}

}  // namespace troupe::internal::rref
