// What a worker knows of an actor type that it hosts, without its C++ type.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/actor.h"
#include "actors/cell/invocation.h"

namespace troupe::actors {

struct ActorType {
  /// Decodes, runs, completes the invocation (later, for a coroutine); or throws.
  using Invoke = void (*)(Actor& actor, Invocation& invocation);
  struct Method {
    uint64_t id;       ///< net::method_id(name)
    std::string name;  ///< "forward"
    Invoke invoke;
    bool blocks = false;  ///< always runs in the pool
  };
  std::string name;
  std::function<std::unique_ptr<Actor>(ValueList&& args)> construct;
  std::vector<Method> methods;
};

/// The actor types that a program hosts: hosting<Layer, Server>().
using Hosting = std::vector<std::shared_ptr<const ActorType>>;

}  // namespace troupe::actors
