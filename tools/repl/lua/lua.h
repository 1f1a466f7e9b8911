// C++ objects and values in Lua.
#pragma once
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

// Debian 13's library, being C++, has the names of C++ functions; Debian 12's those of C.
#if TROUPE_LUA_HAS_CXX_NAMES
#include <lua.h>
// lua.h comes first
#include <lauxlib.h>
#include <lualib.h>
#else
#include <lua.hpp>
#endif

#include "core/value/value.h"

namespace troupe::repl {

class Interpreter;
/// The interpreter of a state or of one of its coroutines.
Interpreter& of(lua_State* L);

/// What a type of objects is called in Lua, in messages and as the name of its metatable. Specialized beside
/// each type.
template <class T>
struct ObjectName;

/// Pushes an object that Lua owns from now on; its destructor runs when it is collected.
template <class T>
T& put(lua_State* L, T object) {
  void* at = lua_newuserdatauv(L, sizeof(T), 0);
  T* made = new (at) T(std::move(object));
  luaL_setmetatable(L, ObjectName<T>::value);
  return *made;
}
/// The object at an index, or null if there is none of that type.
template <class T>
T* get_if(lua_State* L, int at) {
  return static_cast<T*>(luaL_testudata(L, at, ObjectName<T>::value));
}
/// The object at an index; a Lua error saying what was got if it is another one.
template <class T>
T& get(lua_State* L, int at) {
  if (T* object = get_if<T>(L, at)) return *object;
  luaL_typeerror(L, at, ObjectName<T>::value);
  std::terminate();  // luaL_typeerror does not return
}

/// Runs f; what it throws becomes a Lua error with file and line. Lua's own errors pass.
int protect(lua_State* L, int (*f)(lua_State*));
template <int (*F)(lua_State*)>
int guarded(lua_State* L) {
  return protect(L, F);
}

struct Function {
  const char* name;
  lua_CFunction f;
};
/// What an object is called once it has been freed: finalizers that run later still see it.
inline constexpr const char* kFreed = "freed object";

template <class T>
int free_object(lua_State* L) {
  if (T* object = get_if<T>(L, 1)) {
    lua_settop(L, 1);
    luaL_setmetatable(L, kFreed);  // it is freed once, and nobody takes it for a T any more
    object->~T();
  }
  return 0;
}
/// Makes a metatable that scripts can neither read nor change: metamethods (names that begin with __), and
/// methods in a table of their own; what is neither is an error, unless __index is among the metamethods.
void make_type(lua_State* L, const char* name, lua_CFunction free_it,
               std::initializer_list<Function> functions);
template <class T>
void make_type(lua_State* L, std::initializer_list<Function> functions) {
  make_type(L, ObjectName<T>::value, free_object<T>, functions);
}
/// Pushes the method of the object at 1 whose name is at 2; false, and nothing pushed: it has none.
bool push_method(lua_State* L);
/// Pushes the methods of a type, by name.
void push_methods(lua_State* L, const char* type);
/// A global table with functions, whose other entries `index` finds by name.
void open_table(lua_State* L, const char* name, lua_CFunction index,
                std::initializer_list<Function> own = {});

inline void push(lua_State* L, std::string_view text) { lua_pushlstring(L, text.data(), text.size()); }
inline std::string_view text_at(lua_State* L, int at) {
  size_t length = 0;
  const char* text = luaL_checklstring(L, at, &length);
  return {text, length};
}

/// For what walks tables within tables, before each, `depth` of them inside others: room on Lua's stack.
/// `invalid` for one that is nested more than 64 deep, as one within itself is. `what`: "cannot travel".
void enter_table(lua_State* L, int depth, const char* what);
/// Pushes a value as what Lua has for it: nil, booleans, numbers, strings, tensors, references, tables.
void push(lua_State* L, Value value);
/// What is at an index, as a value. A future is waited for. A table with 1..n only is a list, one with string
/// keys a map, an empty one a list. `invalid` for functions, for mixed tables and for tables within
/// themselves.
Value value_at(lua_State* L, int at);
/// The arguments from `first` on, to `until` (0: all). If the last one is a table with string keys alone, it
/// is `named`.
ValueList arguments_from(lua_State* L, int first, ValueMap* named, int until = 0);
/// Pushes one value, or several as several results; nothing for none.
int push_results(lua_State* L, ValueList values);
/// A map at an index; empty if there is no argument. nil is refused: it stands for a name that was mistyped.
ValueMap options_at(lua_State* L, int at);

}  // namespace troupe::repl
