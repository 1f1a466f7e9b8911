// What can be asked about references and the objects behind them.
#include <algorithm>

#include "core/base/fork.h"
#include "rref/ref_messages.h"
#include "rref/ref_table.h"

namespace troupe::internal::rref {

void RefTable::check(const ObjectId& id) {
  check_process("call");
  Lock lock(mutex_);
  if (!worker_ || detached_)
    throw_error(ErrorKind::cancelled, "[rref] the cluster of this reference has been shut down");
  if (auto why = holder_.failure(id)) {
    worker_->unheard().heard(id);
    throw *why;
  }
}

bool RefTable::is_here(const ObjectId& id) const {
  Lock lock(mutex_);
  return worker_ && worker_->id() == id.owner;
}

std::string RefTable::describe(const Handle& handle) const {
  const ObjectId& id = handle.id();
  Lock lock(mutex_);
  std::string text = label(handle) + " on ";
  if (!worker_) return text + "worker " + std::to_string(id.owner) + " of a cluster that was shut down";
  text += worker_->members().name_of(id.owner);
  return worker_->id() == id.owner ? text : text + ", used by " + worker_->name();
}

Future<Value> RefTable::ask(const Handle& handle, uint64_t question, const char* label,
                            actors::CallOptions options) {
  const std::string what = label + handle.type();
  try {
    check(handle.id());
    options.held = &handle;
    return worker().call(handle.id(), what, question, {}, std::move(options));
  } catch (...) {
    return Future<Value>::failed(current_error().crossing(what));
  }
}

Future<void> RefTable::ready(const Handle& handle) {
  return ask(handle, kReady.method, "creation of ", {}).then([](const Value&) {});
}

Future<Value> RefTable::fetch(const Handle& value, const actors::CallOptions& options) {
  return ask(value, kFetch.method, "fetch of ", options);
}

void RefTable::at_owner(const Handle& handle, std::function<void(const Result<Actor*>&)> f) {
  actors::Worker& worker = this->worker();
  const ObjectId& id = handle.id();
  if (id.owner != worker.id())
    throw_invalid("[rref] local access to " + handle.type() + " works on its owner " +
                  worker.members().name_of(id.owner) + " alone, and this is " + worker.name() +
                  ": call a method instead");
  auto cell = worker.actors().find(id);
  if (!cell) {
    Lock lock(mutex_);
    const auto failed = failed_.find(id);
    if (failed != failed_.end()) {
      worker.unheard().heard(id);
      throw failed->second;
    }
    if (creations_.constructing(id))
      throw_invalid("[rref] " + handle.type() + " is still being made on " + worker.name() +
                    ": local access works once its constructor has ended");
    throw_invalid("[rref] " + handle.type() + " is not, or no longer, an actor of " + worker.name());
  }
  const auto run = [cell, f = std::move(f)] {
    Result<Actor*> actor = nullptr;
    try {
      actor = &cell->object();
    } catch (...) {
      cell->failure_heard();
      actor = current_error();
    }
    f(actor);
  };
  cell->post(run, actors::DispatchTarget::caller);
}

// ---- what lives on a worker

Future<std::vector<RefTable::Described>> RefTable::objects(WorkerId owner, int64_t limit) {
  return kObjects.ask(worker(), owner, limit);
}

std::vector<RefTable::Described> RefTable::objects_here(actors::Worker& worker, int64_t at_most) const {
  const auto limit = static_cast<size_t>(std::max<int64_t>(0, at_most));
  struct Object {
    ObjectId id;
    StoredResultPtr value;
    bool is_value;
    std::vector<std::string> names, holders;
  };
  std::vector<Object> objects;
  {
    Lock lock(mutex_);
    std::unordered_map<ObjectId, size_t> place;
    for (const ObjectId& id : owner_.some(limit)) {
      place.emplace(id, objects.size());
      objects.push_back({id, values_.peek(id), values_.has(id), {}, {}});
      for (WorkerId w : owner_.holders_of(id)) objects.back().holders.push_back(worker.members().name_of(w));
    }
    for (const auto& [name, ref] : names_.all())
      if (const auto at = place.find(ref->id()); at != place.end()) objects[at->second].names.push_back(name);
  }
  std::vector<Described> out;
  for (Object& o : objects) {
    std::string what = "an actor that could not be made";
    if (o.is_value)
      what = !o.value         ? "a value that is not there yet"
             : o.value->error ? "a value that failed"
                              : "value, " + o.value->value.describe();
    else if (auto cell = worker.actors().find(o.id))
      what = cell->type().name;
    out.emplace_back(object_name(what, o.id), std::move(o.names), std::move(o.holders));
  }
  return out;
}

}  // namespace troupe::internal::rref
