// Answers of calls in Lua: each use of one is a use of its value.
#include <fmt/format.h>

#include "core/base/error.h"
#include "tools/repl/lua/interpreter.h"
#include "tools/repl/lua/objects.h"

namespace troupe::repl {

Value FutureObject::get(lua_State* L) { return get(of(L).session()); }

int push_future(lua_State* L, const Future<Value>& future, const std::string& what, bool gives) {
  put<FutureObject>(L, FutureObject(script::answer_of(of(L).session(), future, what, gives)));
  return 1;
}

namespace {

int future_get(lua_State* L) {
  auto& f = get<FutureObject>(L, 1);
  if (lua_isnoneornil(L, 2)) {
    push(L, f.wait(of(L).session()));
    return 1;
  }
  const double seconds = luaL_checknumber(L, 2);
  const TimePoint end =
      Clock::system().now() + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  f.look(of(L).session());
  while (!f.future.is_ready()) {
    script::Session::check();
    const Duration left = end - Clock::system().now();
    if (left <= Duration(0))
      throw_error(ErrorKind::deadline,
                  fmt::format("{} did not come within {} s; it goes on", f.what, seconds));
    f.future.wait_for(std::min<Duration>(left, std::chrono::milliseconds(20)));
  }
  push(L, f.get(L));
  return 1;
}
int future_async(lua_State* L) {
  get<FutureObject>(L, 1).stays = true;
  lua_settop(L, 1);
  return 1;
}
int future_ready(lua_State* L) {
  lua_pushboolean(L, get<FutureObject>(L, 1).future.is_ready());
  return 1;
}
int future_cancel(lua_State* L) {
  get<FutureObject>(L, 1).cancel(of(L).session());
  return 0;
}
int future_to_string(lua_State* L) {
  push(L, std::string_view(get<FutureObject>(L, 1).str()));
  return 1;
}
// f:sum(), f[0], f.shape: of its value.
int future_index(lua_State* L) {
  if (push_method(L)) return 1;
  push(L, get<FutureObject>(L, 1).get(L));
  if (lua_isnil(L, -1) || lua_isnumber(L, -1) || lua_isboolean(L, -1))
    throw_invalid(std::string("the value of this future, a ") + luaL_typename(L, -1) + ", has no fields");
  lua_pushvalue(L, 2);
  lua_gettable(L, -2);
  if (lua_isfunction(L, -1)) {  // a method: it has to be given the value, not the future
    lua_pushvalue(L, -2);
    lua_pushcclosure(
        L,
        +[](lua_State* s) {
          lua_pushvalue(s, lua_upvalueindex(2));
          lua_replace(s, 1);
          lua_pushvalue(s, lua_upvalueindex(1));
          lua_insert(s, 1);
          lua_call(s, lua_gettop(s) - 1, LUA_MULTRET);
          return lua_gettop(s);
        },
        2);
  }
  return 1;
}
template <int Operation>
int future_arithmetic(lua_State* L) {
  lua_settop(L, 2);
  for (int i : {1, 2})
    if (auto* f = get_if<FutureObject>(L, i)) {
      push(L, f->get(L));
      lua_replace(L, i);
    }
  if (Operation == LUA_OPUNM) lua_settop(L, 1);
  lua_arith(L, Operation);
  return 1;
}
// Of two futures, or with < and <= of a future and a value: their values are compared.
template <int Operation>
int future_compare(lua_State* L) {
  for (int i : {1, 2})
    if (auto* f = get_if<FutureObject>(L, i)) {
      push(L, f->get(L));
      lua_replace(L, i);
    }
  lua_pushboolean(L, lua_compare(L, 1, 2, Operation));
  return 1;
}
int future_length(lua_State* L) {
  push(L, get<FutureObject>(L, 1).get(L));
  lua_len(L, -1);
  return 1;
}

}  // namespace

void open_futures(lua_State* L) {
  make_type<FutureObject>(L, {{"get", guarded<future_get>},
                              {"async", guarded<future_async>},
                              {"ready", guarded<future_ready>},
                              {"cancel", guarded<future_cancel>},
                              {"__tostring", guarded<future_to_string>},
                              {"__add", guarded<future_arithmetic<LUA_OPADD>>},
                              {"__sub", guarded<future_arithmetic<LUA_OPSUB>>},
                              {"__mul", guarded<future_arithmetic<LUA_OPMUL>>},
                              {"__div", guarded<future_arithmetic<LUA_OPDIV>>},
                              {"__pow", guarded<future_arithmetic<LUA_OPPOW>>},
                              {"__mod", guarded<future_arithmetic<LUA_OPMOD>>},
                              {"__idiv", guarded<future_arithmetic<LUA_OPIDIV>>},
                              {"__unm", guarded<future_arithmetic<LUA_OPUNM>>},
                              {"__eq", guarded<future_compare<LUA_OPEQ>>},
                              {"__lt", guarded<future_compare<LUA_OPLT>>},
                              {"__le", guarded<future_compare<LUA_OPLE>>},
                              {"__len", guarded<future_length>}});
  luaL_getmetatable(L, ObjectName<FutureObject>::value);
  lua_pushcfunction(L, guarded<future_index>);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
}

}  // namespace troupe::repl
