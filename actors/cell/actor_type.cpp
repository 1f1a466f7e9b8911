#include "actors/cell/actor_type.h"

#include <algorithm>
#include <map>

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "net/wire/wire.h"

namespace troupe::internal::actors {
namespace {

// Filled by static initializers, so it is made when it is first used, and never destroyed.
struct Registry {
  Mutex mutex;
  std::multimap<std::string, std::shared_ptr<const ActorType>> types TROUPE_GUARDED_BY(mutex);
};

Registry& registry() {
  static Registry& all = *new Registry;
  return all;
}

std::string list_of(const std::vector<ActorType::Parameter>& parameters) {
  std::string out = "(";
  for (const auto& p : parameters)
    out += (out.size() > 1 ? ", " : "") + p.name + (p.name.empty() ? "" : ": ") + p.type;
  return out + ")";
}

std::vector<ActorType::Parameter> parameters_of(const ActorType::Signature& signature) {
  std::vector<ActorType::Parameter> out;
  for (const NameOf type : signature.types) {
    const size_t at = out.size();
    out.push_back({at < signature.names.size() ? signature.names[at] : "", type()});
  }
  return out;
}

}  // namespace

std::string ActorType::Method::signature() const { return name + list_of(parameters) + " -> " + result; }

ActorType::Constructor ActorType::constructor(uint64_t id, size_t arguments) const {
  Lock lock(registry().mutex);
  std::string known;
  for (const Constructor& c : constructors) {
    if (id ? c.id == id : c.listed && c.parameters.size() == arguments) return c;
    if (c.listed || id) known += (known.empty() ? "" : ", ") + name + list_of(c.parameters);
  }
  if (id)
    throw_invalid("[spawn] this worker's program has no such constructor of " + name +
                  ": the workers run different programs");
  throw_invalid("[spawn] " + name + " cannot be made by name from " + std::to_string(arguments) +
                " arguments; " +
                (known.empty() ? "its `remote` lists no constructor<...>" : "it lists: " + known));
}

std::vector<ActorType::Constructor> ActorType::all_constructors() const {
  Lock lock(registry().mutex);
  return constructors;
}

void ActorType::add_method(const char* of, Invoke invoke, bool blocks, const Signature& signature,
                           NameOf result) {
  methods.push_back(
      {net::method_id(of), of, invoke, blocks, parameters_of(signature), result(), signature.text});
}

void ActorType::add_constructor(uint64_t id, Constructor::Make make, bool listed,
                                const Signature& signature) {
  Constructor constructor{id, make, listed, parameters_of(signature), signature.text};
  Lock lock(registry().mutex);
  const auto same = std::find_if(constructors.begin(), constructors.end(),
                                 [&](const Constructor& c) { return c.id == id; });
  if (same == constructors.end()) constructors.push_back(std::move(constructor));
}

std::shared_ptr<ActorType> new_type(std::string_view name) {
  auto type = std::make_shared<ActorType>();
  type->name = name;
  return type;
}

std::string method_prefix_of(std::string_view type, const char* method) {
  return "[" + std::string(type) + "::" + method + "]";
}

std::string constructor_prefix_of(std::string_view type) { return "[" + std::string(type) + "] constructor"; }

void register_type(const std::shared_ptr<const ActorType>& type) {
  Lock lock(registry().mutex);
  registry().types.emplace(type->name, type);
}

std::shared_ptr<const ActorType> find_type(const std::string& name) {
  Lock lock(registry().mutex);
  const auto [begin, end] = registry().types.equal_range(name);
  if (begin == end) return nullptr;
  if (std::next(begin) != end)
    throw_invalid(
        "[spawn] several actor types of this program are called " + name +
        ", in namespaces without a name: give each a name or a namespace of its own, or name the one that is "
        "meant in hosting<...>()");
  return begin->second;
}

std::vector<std::shared_ptr<const ActorType>> all_types() {
  Lock lock(registry().mutex);
  std::vector<std::shared_ptr<const ActorType>> out;
  for (const auto& [name, type] : registry().types) out.push_back(type);
  return out;
}

}  // namespace troupe::internal::actors
