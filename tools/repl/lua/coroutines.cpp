// Coroutines that an interrupt ends, and finalizers in coroutines: in a finalizer alone Lua runs no hooks.
#include "tools/repl/lua/interpreter.h"
#include "tools/repl/lua/objects.h"

namespace troupe::repl {
namespace {

// A coroutine runs in this scope.
class Running {
 public:
  Running(lua_State* L, lua_State* co) : interpreter_(of(L)) { interpreter_.push_running(co); }
  ~Running() { interpreter_.pop_running(); }
  Running(const Running&) = delete;

 private:
  Interpreter& interpreter_;
};

lua_State* thread_at(lua_State* L, int at) {
  lua_State* co = lua_tothread(L, at);
  if (!co) luaL_typeerror(L, at, "coroutine");
  return co;
}

// Calls Lua's own function, which is the first upvalue, with all arguments.
int call_original(lua_State* L) {
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

// coroutine.resume, coroutine.close
int run_in_coroutine(lua_State* L) {
  const Running running(L, thread_at(L, 1));
  return call_original(L);
}
int create(lua_State* L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  call_original(L);
  of(L).inherit(L, thread_at(L, -1));
  return 1;
}
int call_wrapped(lua_State* L) {
  const Running running(L, lua_tothread(L, lua_upvalueindex(2)));
  return call_original(L);
}
int wrap(lua_State* L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  call_original(L);
  lua_getupvalue(L, -1, 1);  // the coroutine
  of(L).inherit(L, thread_at(L, -1));
  lua_pushcclosure(L, call_wrapped, 2);
  return 1;
}

// What stands as __gc in place of the script's own function, its upvalue.
int finalize(lua_State* L) {
  lua_State* co = lua_newthread(L);
  of(L).leave_all(co);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_pushvalue(L, 1);
  lua_xmove(L, co, 2);
  int results = 0;
  const int status = [&] {
    const Running running(L, co);
    return lua_resume(co, L, 1, &results);
  }();
  if (status == LUA_OK) return 0;
  lua_resetthread(co);
  if (status == LUA_YIELD) return luaL_error(L, "a finalizer cannot yield");
  lua_xmove(co, L, 1);
  return lua_error(L);
}
// As Lua's own, but for __gc.
int set_metatable(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  luaL_argexpected(L, lua_isnil(L, 2) || lua_istable(L, 2), 2, "nil or table");
  if (luaL_getmetafield(L, 1, "__metatable") != LUA_TNIL)
    return luaL_error(L, "cannot change a protected metatable");
  lua_settop(L, 2);
  if (lua_istable(L, 2)) {
    lua_pushliteral(L, "__gc");
    lua_pushvalue(L, -1);
    if (lua_rawget(L, 2) == LUA_TFUNCTION && lua_tocfunction(L, -1) != finalize) {
      lua_pushcclosure(L, finalize, 1);
      lua_rawset(L, 2);
    }
    lua_settop(L, 2);
  }
  lua_setmetatable(L, 1);
  return 1;
}

// Puts f in the place of a field of the table at the top.
void replace(lua_State* L, const char* name, lua_CFunction f) {
  lua_getfield(L, -1, name);
  lua_pushcclosure(L, f, 1);
  lua_setfield(L, -2, name);
}

}  // namespace

void open_coroutines(lua_State* L) {
  lua_getglobal(L, "coroutine");
  replace(L, "resume", run_in_coroutine);
  replace(L, "close", run_in_coroutine);
  replace(L, "create", create);
  replace(L, "wrap", wrap);
  lua_pop(L, 1);
  lua_register(L, "setmetatable", set_metatable);
}

}  // namespace troupe::repl
