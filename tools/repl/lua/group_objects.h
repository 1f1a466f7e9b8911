// Groups and meshes as objects that scripts hold.
#pragma once
#include "tools/repl/lua/lua.h"
#include "troupe/groups.h"

namespace troupe::repl {

template <>
struct ObjectName<Group> {
  static constexpr const char* value = "group";
};
template <>
struct ObjectName<Mesh> {
  static constexpr const char* value = "mesh";
};

}  // namespace troupe::repl
