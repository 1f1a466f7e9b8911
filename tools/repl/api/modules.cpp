// nn.*: modules by name in Lua, and in which dtype they compute.
#include "core/graph/autocast.h"
#include "nn/make.h"
#include "nn/summary.h"
#include "tools/repl/lua/interpreter.h"
#include "tools/repl/lua/objects.h"

namespace troupe::repl {

namespace {

// nn.NAME(...): the name is the function's upvalue.
int make_module(lua_State* L) {
  ValueMap named;
  ValueList positional;
  // Modules as arguments are their specifications, and a list of them stays one.
  const bool sequential = text_at(L, lua_upvalueindex(1)) == "sequential";
  positional = arguments_from(L, 1, sequential ? nullptr : &named);
  put<ModuleObject>(
      L, script::module_of(text_at(L, lua_upvalueindex(1)), std::move(positional), std::move(named)));
  return 1;
}
int nn_index(lua_State* L) {
  std::vector<Entry> known(nn::modules().begin(), nn::modules().end());
  const std::string_view name = text_at(L, 2);
  find_entry(known, name, "[nn] unknown module");
  push(L, name);
  lua_pushcclosure(L, guarded<make_module>, 1);
  lua_pushvalue(L, 2);
  lua_pushvalue(L, -2);
  lua_rawset(L, 1);
  return 1;
}

int module_call(lua_State* L) {
  nn::Layer& layer = get<ModuleObject>(L, 1).made();
  push_tensor(L, layer.forward(tensor_at(L, 2)));
  return 1;
}
int module_parameters(lua_State* L) {
  ValueList out;
  for (const Tensor& t : get<ModuleObject>(L, 1).made().parameters()) out.emplace_back(t);
  push(L, Value(std::move(out)));
  return 1;
}
int module_state(lua_State* L) {
  push(L, script::state_value(get<ModuleObject>(L, 1).made().state_dict()));
  return 1;
}
int module_load_state(lua_State* L) {
  get<ModuleObject>(L, 1).made().load_state_dict(state_at(L, 2, "m:load_state_dict(state)"));
  return 0;
}
template <bool On>
int module_train(lua_State* L) {
  nn::Layer& layer = get<ModuleObject>(L, 1).made();
  if (On)
    layer.train();
  else
    layer.eval();
  lua_settop(L, 1);
  return 1;
}
int module_spec(lua_State* L) {
  push(L, get<ModuleObject>(L, 1).spec);
  return 1;
}
int autocast(lua_State* L) {
  luaL_checktype(L, 2, LUA_TFUNCTION);
  const AutocastGuard amp(Codec<DType>::from(value_at(L, 1)));
  lua_call(L, lua_gettop(L) - 2, LUA_MULTRET);
  return lua_gettop(L) - 1;
}

int module_to_string(lua_State* L) {
  ModuleObject& m = get<ModuleObject>(L, 1);
  push(L, std::string_view(nn::summary(m.made())));
  return 1;
}

}  // namespace

void open_modules(lua_State* L) {
  make_type<ModuleObject>(L, {{"__call", guarded<module_call>},
                              {"__tostring", guarded<module_to_string>},
                              {"forward", guarded<module_call>},
                              {"parameters", guarded<module_parameters>},
                              {"state_dict", guarded<module_state>},
                              {"load_state_dict", guarded<module_load_state>},
                              {"train", guarded<module_train<true>>},
                              {"eval", guarded<module_train<false>>},
                              {"spec", guarded<module_spec>}});
  open_table(L, "nn", guarded<nn_index>);
  lua_register(L, "autocast", guarded<autocast>);
}

}  // namespace troupe::repl
