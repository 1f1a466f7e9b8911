// What is known of an actor type without its C++ type: how it is made, its methods, and what they are called
// with.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "actors/actor.h"
#include "core/codec/codec.h"

namespace troupe::internal::actors {

class Invocation;

struct ActorType {
  /// Decodes, runs, completes the invocation (later, for a coroutine); or throws.
  using Invoke = void (*)(Actor& actor, Invocation& invocation);
  struct Parameter {
    std::string name;  ///< empty unless doc<> gives one
    std::string type;  ///< "tensor", "int64", "list of double"
  };
  struct Method {
    uint64_t id;       ///< net::method_id(name)
    std::string name;  ///< "forward"
    Invoke invoke;
    bool blocks = false;  ///< always runs in the pool
    std::vector<Parameter> parameters = {};
    std::string result = {};  ///< "tensor"; "nothing" for void
    std::string text = {};    ///< of doc<>
    /// "forward(x: tensor) -> tensor".
    std::string signature() const;
  };
  struct Constructor {
    using Make = std::unique_ptr<Actor> (*)(ValueList&& args);
    uint64_t id;  ///< of the types of its arguments
    Make make;
    bool listed = false;  ///< in `remote`: may be used by name, too
    std::vector<Parameter> parameters = {};
    std::string text = {};
  };
  std::string name;
  std::vector<Method> methods;
  std::vector<Constructor> constructors;

  /// The constructor of that id; id 0: a listed one that takes as many arguments. Thread-safe. `invalid`
  /// listing those that there are.
  Constructor constructor(uint64_t id, size_t arguments) const;
  /// Those that there are now, a copy. Thread-safe.
  std::vector<Constructor> all_constructors() const;
  /// What a class says of a method or constructor, in constants: the names are made when the type is.
  struct Signature {
    std::span<const NameOf> types;
    std::span<const char* const> names;  ///< of the parameters; of the first ones, or none
    const char* text;
  };
  /// Before main(), or as a library is loaded. add_constructor() is thread-safe, and does nothing if there is
  /// one of that id.
  void add_method(const char* name, Invoke invoke, bool blocks, const Signature& signature, NameOf result);
  void add_constructor(uint64_t id, Constructor::Make make, bool listed, const Signature& signature);
};

/// Without methods and constructors yet.
std::shared_ptr<ActorType> new_type(std::string_view name);

// How texts of errors begin: "[Layer::forward]", "[Layer] constructor".
std::string method_prefix_of(std::string_view type, const char* method);
std::string constructor_prefix_of(std::string_view type);

/// The actor types that a program names in launch() or when it makes a cluster: hosting<Layer, Server>().
using TypeRegistry = std::vector<std::shared_ptr<const ActorType>>;

/// The program knows this type: every worker of it can host it. Thread-safe.
void register_type(const std::shared_ptr<const ActorType>& type);
/// The type of that name, or null. `invalid` if several types of the program have it.
std::shared_ptr<const ActorType> find_type(const std::string& name);
/// All types that the program knows, by name.
std::vector<std::shared_ptr<const ActorType>> all_types();

}  // namespace troupe::internal::actors
