// Data parallel training in Lua.
#include "script/replicas.h"

#include <fmt/format.h>

#include "tools/repl/lua/interpreter.h"
#include "tools/repl/lua/objects.h"

namespace troupe::repl {

template <>
struct ObjectName<parallel::Split> {
  static constexpr const char* value = "split";
};
struct AccumulationObject {
  ReplicasObject replicas;
  StepObject step;  ///< of whose passes it is
  std::optional<parallel::Accumulation> open;
};
template <>
struct ObjectName<AccumulationObject> {
  static constexpr const char* value = "accumulation";
};

namespace {

// data_parallel({a, b}, options), data_parallel(module, options)
int make_replicas(lua_State* L) {
  Value model;
  if (const auto* module = get_if<ModuleObject>(L, 1))
    model = module->spec;
  else if (model = value_at(L, 1); !model.get_if<ValueList>())
    throw_invalid("data_parallel(model, options) takes a module or a list of actors, got " +
                  model.describe());
  if (const auto* list = model.get_if<ValueList>(); list && list->empty())
    throw_invalid("data_parallel{a, b} takes the actors; got none");
  put<ReplicasObject>(L, script::Replicas::make(of(L).session(), std::move(model), options_at(L, 2)));
  return 1;
}

// split(x), split{x0, x1}
int make_split(lua_State* L) {
  if (!lua_istable(L, 1)) {
    put(L, parallel::split(tensor_at(L, 1)));
    return 1;
  }
  Tensors parts;
  for (lua_Integer i = 1; i <= luaL_len(L, 1); ++i) {
    lua_geti(L, 1, i);
    parts.push_back(tensor_at(L, lua_gettop(L)));
    lua_pop(L, 1);
  }
  put(L, parallel::split(std::move(parts)));
  return 1;
}
int split_to_string(lua_State* L) {
  const auto& s = get<parallel::Split>(L, 1);
  push(L, std::string_view(s.whole.defined() ? "split of " + s.whole.summary()
                                             : fmt::format("split in {} parts", s.parts.size())));
  return 1;
}

std::vector<script::Replicas::Argument> divided_arguments(lua_State* L, int first) {
  std::vector<script::Replicas::Argument> out;
  for (int i = first; i <= lua_gettop(L); ++i)
    if (const auto* split = get_if<parallel::Split>(L, i))
      out.emplace_back(*split);
    else
      out.emplace_back(value_at(L, i));
  return out;
}
int push_rows(lua_State* L, const Future<Tensor>& result, const std::string& what) {
  return push_future(L, result.then([](const Tensor& t) { return Value(t); }), what);
}
// net:mean("loss", split(x), split(y))
int replicas_mean(lua_State* L) {
  const ReplicasObject net = get<ReplicasObject>(L, 1);
  const std::string method(text_at(L, 2));
  const auto args = divided_arguments(L, 3);
  const auto step = of(L).step_of(L);
  const script::InStep in(step.get());
  return push_rows(L, net->mean(of(L).session(), method, args), "mean of " + method + " of replicas");
}
int replicas_rows(lua_State* L) {
  const ReplicasObject net = get<ReplicasObject>(L, 1);
  const std::string method(text_at(L, 2));
  const auto args = divided_arguments(L, 3);
  const auto step = of(L).step_of(L);
  const script::InStep in(step.get());
  return push_rows(L, net->rows(of(L).session(), method, args), method + " of replicas");
}
int replicas_forward(lua_State* L) {
  const ReplicasObject net = get<ReplicasObject>(L, 1);
  const Tensor x = tensor_at(L, 2);
  const auto step = of(L).step_of(L);
  const script::InStep in(step.get());
  return push_rows(L, net->rows(of(L).session(), "forward", {parallel::split(x)}), "forward of replicas");
}
int list_replicas(lua_State* L) {
  const ReplicasObject net = get<ReplicasObject>(L, 1);
  lua_createtable(L, static_cast<int>(net->size()), 0);
  for (size_t r = 0; r < net->size(); ++r) {
    put<AnyRef>(L, net->actors()[r]);
    lua_rawseti(L, -2, static_cast<lua_Integer>(r) + 1);
  }
  return 1;
}
int replicas_state(lua_State* L) {
  push(L, script::state_value(of(L).session().get(get<ReplicasObject>(L, 1)->state_dict())));
  return 1;
}
int replicas_load_state(lua_State* L) {
  const ReplicasObject net = get<ReplicasObject>(L, 1);
  of(L).session().get(net->load_state_dict(state_at(L, 2, "net:load_state_dict(state)")));
  return 0;
}
int replicas_report(lua_State* L) {
  push(L, std::string_view(of(L).session().get(get<ReplicasObject>(L, 1)->report()).str()));
  return 1;
}
// Ranks count from 0.
size_t rank_at(lua_State* L, int at) {
  const lua_Integer rank = luaL_checkinteger(L, at);
  if (rank < 0) throw_invalid("[data parallel] rank " + std::to_string(rank) + ": ranks count from 0");
  return static_cast<size_t>(rank);
}
int replicas_replace(lua_State* L) {
  get<ReplicasObject>(L, 1)->replace(rank_at(L, 2), std::string(luaL_checkstring(L, 3)));
  return 0;
}
int replicas_shrink(lua_State* L) {
  get<ReplicasObject>(L, 1)->shrink(rank_at(L, 2));
  return 0;
}
int replicas_grow(lua_State* L) {
  get<ReplicasObject>(L, 1)->grow(std::string(luaL_checkstring(L, 2)));
  return 0;
}
int replicas_average(lua_State* L) {
  of(L).session().get(get<ReplicasObject>(L, 1)->average());
  return 0;
}
int replicas_length(lua_State* L) {
  lua_pushinteger(L, static_cast<lua_Integer>(get<ReplicasObject>(L, 1)->size()));
  return 1;
}
int replicas_to_string(lua_State* L) {
  const auto& net = *get<ReplicasObject>(L, 1);
  std::string all;
  for (const AnyRef& a : net.actors()) all += (all.empty() ? "" : ", ") + a.str();
  push(L, std::string_view(fmt::format("{} replicas: {}", net.size(), all)));
  return 1;
}

// local later <close> = net:accumulate()
int replicas_accumulate(lua_State* L) {
  const ReplicasObject net = get<ReplicasObject>(L, 1);
  const auto step = of(L).step_of(L);
  if (!step)
    throw_invalid(
        "net:accumulate() is for the passes of a context: local step <close> = context() before it");
  const script::InStep in(step.get());
  auto& made = put<AccumulationObject>(L, {net, step, {}});
  made.open.emplace(net->accumulate());
  return 1;
}
int accumulation_close(lua_State* L) {
  get<AccumulationObject>(L, 1).open.reset();
  return 0;
}
int accumulation_to_string(lua_State* L) {
  push(L, std::string_view(get<AccumulationObject>(L, 1).open ? "accumulation" : "accumulation, closed"));
  return 1;
}

}  // namespace

void open_replicas(lua_State* L) {
  make_type<ReplicasObject>(L, {{"mean", guarded<replicas_mean>},
                                {"rows", guarded<replicas_rows>},
                                {"accumulate", guarded<replicas_accumulate>},
                                {"replicas", guarded<list_replicas>},
                                {"replace", guarded<replicas_replace>},
                                {"shrink", guarded<replicas_shrink>},
                                {"grow", guarded<replicas_grow>},
                                {"average", guarded<replicas_average>},
                                {"report", guarded<replicas_report>},
                                {"state_dict", guarded<replicas_state>},
                                {"load_state_dict", guarded<replicas_load_state>},
                                {"__call", guarded<replicas_forward>},
                                {"__len", guarded<replicas_length>},
                                {"__tostring", guarded<replicas_to_string>}});
  make_type<parallel::Split>(L, {{"__tostring", guarded<split_to_string>}});
  make_type<AccumulationObject>(L, {{"close", guarded<accumulation_close>},
                                    {"__close", guarded<accumulation_close>},
                                    {"__tostring", guarded<accumulation_to_string>}});
  lua_register(L, "data_parallel", guarded<make_replicas>);
  lua_register(L, "split", guarded<make_split>);
}

}  // namespace troupe::repl
