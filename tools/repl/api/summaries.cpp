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

std::string summary_tag(lua_State* L) { return std::string(text_at(L, 2)); }

// s:scalar(tag, value, step); the value may be a tensor with one element.
int add_scalar(lua_State* L) {
  Summary& summary = get<Summary>(L, 1);
  const Value value = value_at(L, 3);
  const auto* tensor = value.get_if<Tensor>();
  summary.scalar(summary_tag(L), tensor ? tensor->item() : luaL_checknumber(L, 3), luaL_checkinteger(L, 4));
  return 0;
}
int add_histogram(lua_State* L) {
  get<Summary>(L, 1).histogram(summary_tag(L), tensor_at(L, 3), luaL_checkinteger(L, 4));
  return 0;
}
int add_text(lua_State* L) {
  get<Summary>(L, 1).text(summary_tag(L), std::string(text_at(L, 3)), luaL_checkinteger(L, 4));
  return 0;
}
int add_picture(lua_State* L) {
  get<Summary>(L, 1).picture(summary_tag(L), tensor_at(L, 3), luaL_checkinteger(L, 4));
  return 0;
}
int make_summary(lua_State* L) {
  put<Summary>(L, Summary(std::string(text_at(L, 1))));
  return 1;
}

}  // namespace

void open_summaries(lua_State* L) {
  make_type<Summary>(L, {{"scalar", guarded<add_scalar>},
                         {"histogram", guarded<add_histogram>},
                         {"text", guarded<add_text>},
                         {"picture", guarded<add_picture>},
                         {"close", free_object<Summary>},
                         {"__close", free_object<Summary>}});
  lua_register(L, "summary", guarded<make_summary>);
}

}  // namespace troupe::repl
