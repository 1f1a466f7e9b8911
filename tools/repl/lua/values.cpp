// Values between C++ and Lua.
#include <cmath>

#include "core/base/error.h"
#include "tools/repl/lua/group_objects.h"
#include "tools/repl/lua/interpreter.h"
#include "tools/repl/lua/objects.h"

namespace troupe::repl {
namespace {

constexpr int kDeepest = 64;
constexpr int kSlots = 8;  // of Lua's stack, for a table, its entry, and what looks at that

// "number", "client"
std::string type_at(lua_State* L, int at) {
  if (luaL_getmetafield(L, at, "__name") != LUA_TSTRING) return luaL_typename(L, at);
  std::string name(text_at(L, -1));
  lua_pop(L, 1);
  return name;
}

Value table_at(lua_State* L, int at, int depth);

Value any_at(lua_State* L, int at, int depth) {
  switch (lua_type(L, at)) {
    case LUA_TNIL:
    case LUA_TNONE:
      return {};
    case LUA_TBOOLEAN:
      return bool(lua_toboolean(L, at));
    case LUA_TNUMBER:
      if (lua_isinteger(L, at)) return int64_t{lua_tointeger(L, at)};
      return double{lua_tonumber(L, at)};
    case LUA_TSTRING:
      return std::string(text_at(L, at));
    case LUA_TTABLE:
      return table_at(L, at, depth);
    case LUA_TUSERDATA:
      if (auto* t = get_if<Tensor>(L, at)) return *t;
      if (auto* r = get_if<AnyRef>(L, at)) return Codec<AnyRef>::to(*r);
      if (auto* f = get_if<FutureObject>(L, at)) return f->get(L);
      if (auto* m = get_if<ModuleObject>(L, at)) return m->spec;
      if (auto* b = get_if<Bytes>(L, at)) return *b;
      if (auto* g = get_if<Group>(L, at)) return Codec<Group>::to(*g);
      if (auto* m = get_if<Mesh>(L, at)) return Codec<Mesh>::to(*m);
      if (auto* s = get_if<ServedObject>(L, at)) return Codec<parallel::Served>::to(s->served);
      [[fallthrough]];
    default:
      throw_invalid("a " + type_at(L, at) +
                    " cannot travel; what can: nil, booleans, numbers, strings, tensors, references, "
                    "modules, groups, meshes, tables of these");
  }
}

Value table_at(lua_State* L, int at, int depth) {
  enter_table(L, depth, "cannot travel");
  at = lua_absindex(L, at);
  const auto length = static_cast<int64_t>(lua_rawlen(L, at));
  ValueMap map;
  int64_t entries = 0;
  bool keys_are_text = true;
  for (lua_pushnil(L); lua_next(L, at); lua_pop(L, 1)) {
    ++entries;
    if (lua_type(L, -2) != LUA_TSTRING)
      keys_are_text = false;
    else
      map[std::string(text_at(L, -2))] = any_at(L, -1, depth + 1);
  }
  if (entries == length && map.empty()) {
    ValueList list;
    for (int64_t i = 1; i <= length; ++i) {
      lua_rawgeti(L, at, i);
      list.push_back(any_at(L, -1, depth + 1));
      lua_pop(L, 1);
    }
    return list;
  }
  if (!keys_are_text)
    throw_invalid(
        "a table is neither a list (1, 2, ..., without holes) nor a map (keys that are strings): it has " +
        std::to_string(entries) + " entries, " + std::to_string(length) + " of them numbered from 1, " +
        std::to_string(map.size()) + " with strings");
  return map;
}

}  // namespace

void enter_table(lua_State* L, int depth, const char* what) {
  if (depth > kDeepest)
    throw_invalid("a table that is within itself, or nested more than " + std::to_string(kDeepest) +
                  " deep, " + what);
  luaL_checkstack(L, kSlots, "too many nested tables");
}

void push(lua_State* L, Value value) {
  luaL_checkstack(L, 4, "too many nested values");
  std::visit(
      [L]<class T>(T& x) {
        if constexpr (std::is_same_v<T, std::monostate>)
          lua_pushnil(L);
        else if constexpr (std::is_same_v<T, bool>)
          lua_pushboolean(L, x);
        else if constexpr (std::is_same_v<T, int64_t>)
          lua_pushinteger(L, x);
        else if constexpr (std::is_same_v<T, double>)
          lua_pushnumber(L, x);
        else if constexpr (std::is_same_v<T, std::string>)
          push(L, std::string_view(x));
        else if constexpr (std::is_same_v<T, Bytes>)
          put<Bytes>(L, std::move(x));
        else if constexpr (std::is_same_v<T, Tensor>)
          push_tensor(L, std::move(x));
        else if constexpr (std::is_same_v<T, RefValue>)
          put<AnyRef>(L, Codec<AnyRef>::from(Value(std::move(x))));
        else if constexpr (std::is_same_v<T, ValueList>) {
          lua_createtable(L, static_cast<int>(x.size()), 0);
          for (size_t i = 0; i < x.size(); ++i) {
            push(L, std::move(x[i]));
            lua_rawseti(L, -2, static_cast<int>(i) + 1);
          }
        } else {
          lua_createtable(L, 0, static_cast<int>(x.size()));
          for (auto& [key, element] : x) {
            push(L, std::string_view(key));
            push(L, std::move(element));
            lua_rawset(L, -3);
          }
        }
      },
      value.v);
}

Value value_at(lua_State* L, int at) { return any_at(L, at, 0); }

ValueList arguments_from(lua_State* L, int first, ValueMap* named, int until) {
  ValueList out;
  const int last = until ? until : lua_gettop(L);
  for (int i = first; i <= last; ++i) {
    Value v = value_at(L, i);
    if (named && i == last && lua_istable(L, i) && v.get_if<ValueMap>() && !v.get_if<ValueMap>()->empty())
      *named = std::move(*v.get_if<ValueMap>());
    else
      out.push_back(std::move(v));
  }
  return out;
}

int push_results(lua_State* L, ValueList values) {
  luaL_checkstack(L, static_cast<int>(values.size()) + 1, "too many results");
  for (Value& v : values) push(L, std::move(v));
  return static_cast<int>(values.size());
}

ValueMap options_at(lua_State* L, int at) {
  if (lua_isnone(L, at)) return {};
  if (lua_isnil(L, at))
    throw_invalid(
        "the table of options is nil, as a name without a value is: leave it out, or write {lr = 0.1}");
  Value v = value_at(L, at);
  if (auto* map = v.get_if<ValueMap>()) return std::move(*map);
  if (auto* list = v.get_if<ValueList>(); list && list->empty()) return {};
  throw_invalid("expected a table of options, like {lr = 0.1}, got " + v.describe());
}

std::map<std::string, Tensor> state_at(lua_State* L, int at, const char* call) {
  const auto refuse = [&](const std::string& got) __attribute__((noreturn)) {
    throw_invalid(
        std::string(call) +
        " takes a table of tensors by name, as state_dict() gives it and load_tensors(path) reads it; got " +
        got);
  };
  if (get_if<ModuleObject>(L, at)) refuse("a module; its state is m:state_dict()");
  if (lua_type(L, at) == LUA_TSTRING)
    refuse("a string; a file is read by load_tensors(\"" + std::string(text_at(L, at)) + "\")");
  if (!lua_istable(L, at)) refuse(type_at(L, at));
  std::map<std::string, Tensor> state;
  for (auto& [name, value] : options_at(L, at)) {
    if (!value.get_if<Tensor>()) refuse(value.describe() + " as " + name);
    state[name] = *value.get_if<Tensor>();
  }
  return state;
}

}  // namespace troupe::repl
