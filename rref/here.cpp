#include "rref/here.h"

#include "actors/cell/actor_cell.h"
#include "actors/membership/members.h"
#include "actors/worker/worker.h"
#include "rref/name_table.h"
#include "rref/ref_table.h"

namespace troupe {

Place::Place(const char* name) : name_(name) {}
Place::Place(std::string name) : name_(std::move(name)) {}
Place::Place(WorkerId id, std::string number) : id_(id), name_(std::move(number)), by_number_(true) {}
std::string Place::text(int64_t number) { return std::to_string(number); }
std::string Place::text(uint64_t number) { return std::to_string(number); }
Place::Place(const internal::actors::Member& member) : id_(member.id), name_(member.name) {}

WorkerId Place::in(const internal::actors::Members& members) const {
  if (id_ != kNoWorker && members.find(id_)) return id_;
  if (!by_number_) return members.id_of(name_);
  throw_invalid("[cluster] no worker has the number " + name_ +
                ". The workers are: " + members.who_is_there());
}

std::vector<std::string> Here::workers() const {
  std::vector<std::string> names;
  for (const auto& m : table().worker().members().all()) names.push_back(m.name);
  return names;
}

Future<void> Here::set_name(const AnyRef& ref, const std::string& name) const {
  ref.worker();  // says so if it is empty
  return ref.handle()->table().set_name(*ref.handle(), name);
}

Future<void> Here::drop_name(const std::string& name) const { return table().drop_name(name); }

const std::string& Here::name() const { return table().worker().name(); }

WorkerId Here::id() const { return table().worker().id(); }

std::pair<std::string, std::string> Here::split_name(const std::string& full) {
  return internal::rref::split_name(full);
}

internal::rref::HandlePtr Here::spawn_handle(const Place& where, std::string_view type, uint64_t constructor,
                                             ValueList args, const std::string& name) const {
  return table().spawn(where.in(table().worker().members()), std::string(type), constructor, std::move(args),
                       name);
}

Future<Value> Here::lookup_value(const std::string& name, std::string_view type, Lookup how) const {
  return table().lookup(name, std::string(type), how.wait, how.timeout);
}

Future<AnyRef> Here::lookup_any(const std::string& name, Lookup how) const {
  return internal::rref::convert<AnyRef>(table().lookup(name, {}, how.wait, how.timeout));
}

Future<std::map<std::string, std::string>> Here::names(const Place& where) const {
  return table().names(where.in(table().worker().members()));
}

Future<std::vector<ObjectInfo>> Here::objects(const Place& where, int64_t limit) const {
  return table()
      .objects(where.in(table().worker().members()), limit)
      .then([](const std::vector<internal::rref::RefTable::Described>& all) {
        std::vector<ObjectInfo> out;
        for (const auto& [what, names, holders] : all) out.push_back({what, names, holders});
        return out;
      });
}

Here here() {
  if (!frame().worker)
    throw_invalid("[here] no worker runs on this thread: here() is for actors; use the Cluster elsewhere");
  return Here(internal::rref::RefTable::of(*frame().worker));
}

internal::rref::HandlePtr internal::rref::refer_to_self(std::string_view type) {
  const auto cell = internal::actors::current_cell();
  if (!cell || cell->type().name != type)
    throw_invalid("[self] self(this) is for methods of " + std::string(type) + "; this thread runs " +
                  (cell ? "actor " + cell->label() : "no actor"));
  return RefTable::of(cell->worker())->refer(*cell);
}

}  // namespace troupe
