// Types of objects in Lua: closed metatables, methods apart from metamethods.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "tools/repl/lua/lua.h"

namespace troupe::repl {
namespace {

constexpr const char* kMethodsField = "methods";  // of a metatable

// The metatable at the top is seen as a name from now on, and cannot be given to anything.
void close_metatable(lua_State* L, const char* name) {
  lua_pushstring(L, name);
  lua_setfield(L, -2, "__metatable");
}

// What is no method, for types that have no fields.
int unknown_method(lua_State* L) {
  if (push_method(L)) return 1;
  if (lua_type(L, 2) != LUA_TSTRING) return 0;
  const std::string name(text_at(L, 2));
  luaL_getmetafield(L, 1, "__name");
  const std::string type(text_at(L, -1));
  push_methods(L, type.c_str());
  std::vector<std::string> known;
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) known.emplace_back(text_at(L, -2));
  std::ranges::sort(known);
  const std::string near = nearest(name, known);
  throw_invalid(fmt::format("{} has no method \"{}\"; {}", type, name,
                            !near.empty()      ? "did you mean \"" + near + "\"?"
                            : type == "module" ? "its tensors are in m:state_dict()"
                                               : fmt::format("it has: {}", fmt::join(known, ", "))));
}

}  // namespace

void make_type(lua_State* L, const char* name, lua_CFunction free_it,
               std::initializer_list<Function> functions) {
  luaL_newmetatable(L, kFreed);
  close_metatable(L, kFreed);
  luaL_newmetatable(L, name);
  close_metatable(L, name);
  lua_pushcfunction(L, free_it);
  lua_setfield(L, -2, "__gc");
  lua_pushcfunction(L, guarded<unknown_method>);
  lua_setfield(L, -2, "__index");
  lua_newtable(L);
  lua_pushvalue(L, -1);
  lua_setfield(L, -3, kMethodsField);
  for (const Function& f : functions) {
    lua_pushcfunction(L, f.f);
    lua_setfield(L, std::string_view(f.name).starts_with("__") ? -3 : -2, f.name);
  }
  lua_pop(L, 3);
}

bool push_method(lua_State* L) {
  const int top = lua_gettop(L);
  if (luaL_getmetafield(L, 1, kMethodsField) == LUA_TTABLE) {
    lua_pushvalue(L, 2);
    if (lua_rawget(L, -2) != LUA_TNIL) return true;
  }
  lua_settop(L, top);
  return false;
}

void push_methods(lua_State* L, const char* type) {
  luaL_getmetatable(L, type);
  lua_getfield(L, -1, kMethodsField);
  lua_remove(L, -2);
}

void open_table(lua_State* L, const char* name, lua_CFunction index, std::initializer_list<Function> own) {
  lua_newtable(L);
  for (const Function& f : own) {
    lua_pushcfunction(L, f.f);
    lua_setfield(L, -2, f.name);
  }
  lua_newtable(L);
  close_metatable(L, name);
  lua_pushcfunction(L, index);
  lua_setfield(L, -2, "__index");
  lua_setmetatable(L, -2);
  lua_setglobal(L, name);
}

}  // namespace troupe::repl
