// Names of objects: who gives, drops and looks them up. The owner of an object knows its names.
#include "rref/ref_messages.h"
#include "rref/ref_table.h"

namespace troupe::internal::rref {
namespace {

template <class T>
const T& field(const Ref<actors::Invocation>& call, size_t index) {
  const ValueList& args = call->call().args;
  if (index >= args.size() || !args[index].get_if<T>()) throw_invalid("[names] malformed message");
  return *args[index].get_if<T>();
}

}  // namespace

// ---- asking

Future<void> RefTable::set_name(const Handle& handle, const std::string& name) {
  check_name(name);
  const ObjectId& id = handle.id();
  try {
    check(id);
    return worker()
        .call({id.owner, kNoWorker, 0}, "naming of " + handle.type() + " '" + name + "'",
              net::method_id(kSetName),
              {number(id.creator), number(id.number), Value(handle.type()), Value(name)}, {.detached = true})
        .then([](const Value&) {});
  } catch (...) {
    return Future<void>::failed(current_error());
  }
}

Future<void> RefTable::drop_name(const std::string& full) {
  const auto [where, name] = split_name(full);
  actors::Worker& worker = this->worker();
  return worker
      .call({worker.members().id_of(where), kNoWorker, 0}, "dropping of " + full, net::method_id(kDropName),
            {Value(name)}, {.detached = true})
      .then([](const Value&) {});
}

Future<Value> RefTable::lookup(const std::string& full, const std::string& type, bool wait,
                               actors::CallOptions options) {
  const auto [where, name] = split_name(full);
  actors::Worker& worker = this->worker();
  return worker.call({worker.members().id_of(where), kNoWorker, 0}, "lookup of " + full,
                     net::method_id(kLookup), {Value(name), Value(type), Value(wait)}, options);
}

Future<Value> RefTable::names(WorkerId owner) { return worker().call_service(owner, kNames, {}); }

// ---- on the owner

// Throws if the name is taken.
void RefTable::give_name(const std::string& name, const ObjectId& id, const std::string& type) {
  check_name(name);
  HandlePtr handle;  // if refused, let go after the lock
  std::lock_guard lock(mutex_);
  if (!worker_ || !owner_.grant(id, id.owner)) throw gone(id);
  handle = std::make_shared<Handle>(shared_from_this(), id, type);
  names_.give(worker_->name(), name, handle);
}

void RefTable::name_given(const std::string& name) {
  std::vector<Ref<actors::Invocation>> lookups;
  {
    std::lock_guard lock(mutex_);
    lookups = names_.arrived(name);
  }
  for (auto& lookup : lookups) lookup->worker().dispatch(lookup);
}

void RefTable::on_set_name(const Ref<actors::Invocation>& call) {
  const ObjectId id{call->worker().id(), static_cast<WorkerId>(field<int64_t>(call, 0)),
                    static_cast<uint64_t>(field<int64_t>(call, 1))};
  bool waits;
  {
    std::lock_guard lock(mutex_);
    waits = !owner_.owns(id) && may_come(id);
    if (waits) creations_.wait(id, call);
  }
  if (waits) return call->worker().watch(id.creator);  // what waits must hear of its end
  const std::string& name = field<std::string>(call, 3);
  give_name(name, id, field<std::string>(call, 2));
  name_given(name);
  call->complete(Value());
}

void RefTable::on_drop_name(const Ref<actors::Invocation>& call) {
  HandlePtr dropped;  // let go after the lock
  {
    std::lock_guard lock(mutex_);
    dropped = names_.drop(call->worker().name(), field<std::string>(call, 0));
  }
  call->complete(Value());
}

void RefTable::on_lookup(const Ref<actors::Invocation>& call) {
  const auto& name = field<std::string>(call, 0);
  const auto& type = field<std::string>(call, 1);
  const bool wait = field<bool>(call, 2);
  HandlePtr found;
  std::vector<Ref<actors::Invocation>> late;  // let go after the lock
  {
    std::lock_guard lock(mutex_);
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
  call->complete(Value(RefValue{found->id(), found->type(), kNoWorker, 0, found}));
}

void RefTable::on_names(const Ref<actors::Invocation>& call) {
  ValueMap out;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [name, ref] : names_.all()) out.emplace(name, Value(ref->type()));
  }
  call->complete(Value(std::move(out)));
}

}  // namespace troupe::internal::rref
