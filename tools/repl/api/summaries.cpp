// Curves of a run in Lua, as datasets::Summary writes them.
#include "data/formats/summary.h"
#include "tools/repl/lua/interpreter.h"
#include "tools/repl/lua/objects.h"

namespace troupe::repl {

using datasets::Summary;
template <>
struct ObjectName<Summary> {
  static constexpr const char* value = "summary";
};

namespace {

std::string tag_at(lua_State* L) { return std::string(text_at(L, 2)); }

// s:scalar(tag, value, step); the value may be a tensor with one element.
int scalar(lua_State* L) {
  Summary& summary = get<Summary>(L, 1);
  const Value value = value_at(L, 3);
  const auto* tensor = value.get_if<Tensor>();
  summary.scalar(tag_at(L), tensor ? tensor->item() : luaL_checknumber(L, 3), luaL_checkinteger(L, 4));
  return 0;
}
int histogram(lua_State* L) {
  get<Summary>(L, 1).histogram(tag_at(L), tensor_at(L, 3), luaL_checkinteger(L, 4));
  return 0;
}
int text(lua_State* L) {
  get<Summary>(L, 1).text(tag_at(L), std::string(text_at(L, 3)), luaL_checkinteger(L, 4));
  return 0;
}
int picture(lua_State* L) {
  get<Summary>(L, 1).picture(tag_at(L), tensor_at(L, 3), luaL_checkinteger(L, 4));
  return 0;
}
int summary(lua_State* L) {
  put<Summary>(L, Summary(std::string(text_at(L, 1))));
  return 1;
}

}  // namespace

void open_summaries(lua_State* L) {
  make_type<Summary>(L, {{"scalar", guarded<scalar>},
                         {"histogram", guarded<histogram>},
                         {"text", guarded<text>},
                         {"picture", guarded<picture>},
                         {"close", free_object<Summary>},
                         {"__close", free_object<Summary>}});
  lua_register(L, "summary", guarded<summary>);
}

}  // namespace troupe::repl
