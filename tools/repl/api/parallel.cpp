// Pipelines and parameter servers in Lua.
#include "script/parallel.h"

#include "script/plans.h"
#include "script/server_client.h"
#include "tools/draw/timeline.h"
#include "tools/repl/lua/group_objects.h"
#include "tools/repl/lua/interpreter.h"
#include "tools/repl/lua/objects.h"

namespace troupe::repl {

using PipelineObject = std::shared_ptr<parallel::Pipeline>;
template <>
struct ObjectName<PipelineObject> {
  static constexpr const char* value = "pipeline";
};
using ClientObject = script::ServerClient;
template <>
struct ObjectName<ClientObject> {
  static constexpr const char* value = "client";
};

namespace {

// pipeline({a, b}, {micro_batches = 4, loss = "cross_entropy"})
int make_pipeline(lua_State* L) {
  Value stages = value_at(L, 1);
  if (!stages.get_if<ValueList>())
    throw_invalid("pipeline({a, b}, options) takes a list of stages, got " + stages.describe());
  put<PipelineObject>(
      L, script::make_pipeline(of(L).session(), std::move(*stages.get_if<ValueList>()), options_at(L, 2)));
  return 1;
}
// pipelines(mesh, {first, second}, {loss = "cross_entropy", shard = "all"})
int make_pipelines(lua_State* L) {
  Value stages = value_at(L, 2);
  if (!stages.get_if<ValueList>())
    throw_invalid("pipelines(mesh, {a, b}, options) takes a list of stages, got " + stages.describe());
  put<PipelinesObject>(L, script::make_pipelines(of(L).session(), get<Mesh>(L, 1),
                                                 std::move(*stages.get_if<ValueList>()), options_at(L, 3)));
  return 1;
}
int measure_layers(lua_State* L) {
  const Value model = value_at(L, 1);
  const Tensor sample = get<Tensor>(L, 2);
  push(L, script::measure(of(L).session(), model, sample, options_at(L, 3)));
  return 1;
}
int plan_layout(lua_State* L) {
  const Value profile = value_at(L, 1);
  push(L, script::plan(profile, options_at(L, 2)));
  return 1;
}
parallel::Pipeline& trained(const PipelineObject& p) { return *p; }
parallel::Pipelines& trained(const PipelinesObject& p) { return p->pipelines; }

// p:step(x, y[, {weights = {...}}]), inside a context.
template <class Object>
int pipeline_step(lua_State* L) {
  const Object p = get<Object>(L, 1);
  const auto step = of(L).step_of(L);
  if (!step)
    throw_invalid(
        "a step of a pipeline leaves its gradients in a context: local step <close> = context() before it");
  parallel::StepOptions options;
  for (auto& [name, v] : options_at(L, 4)) {
    if (name != "weights") throw_invalid("a step of a pipeline has the option weights, got " + name);
    options.weights = Codec<std::vector<double>>::from(std::move(v));
  }
  const autograd::Context::Guard in(step->context());
  const Future<Value> done =
      trained(p)
          .step_async(value_at(L, 2), value_at(L, 3), options)
          .then([](const parallel::StepResult& result) {
            ValueList losses;
            for (const double l : result.losses) losses.emplace_back(l);
            return Value(
                ValueMap{{"loss", result.loss}, {"losses", std::move(losses)}, {"weight", result.weight}});
          });
  step->add_pass(done.then([](const Value&) {}));
  return push_future(L, done, "step of a pipeline");
}
template <class Object>
int pipeline_forward(lua_State* L) {
  const Object p = get<Object>(L, 1);
  const NoGradGuard none;
  std::vector<Value> outputs = of(L).session().get(trained(p).forward_async(value_at(L, 2)));
  push(L, Value(ValueList(outputs.begin(), outputs.end())));
  return 1;
}
// The table at the top is shown as this text; its fields stay.
void show_as(lua_State* L, const std::string& text) {
  lua_createtable(L, 0, 1);
  push(L, std::string_view(text));
  lua_pushcclosure(
      L,
      +[](lua_State* s) {
        lua_pushvalue(s, lua_upvalueindex(1));
        return 1;
      },
      1);
  lua_setfield(L, -2, "__tostring");
  lua_setmetatable(L, -2);
}
int pipeline_report(lua_State* L) {
  const parallel::StepReport report = get<PipelineObject>(L, 1)->step_report();
  push(L, script::report_value(report));
  show_as(L, report.str());
  return 1;
}
int pipeline_to_string(lua_State* L) {
  const auto& p = *get<PipelineObject>(L, 1);
  push(L, std::string_view("pipeline of " + std::to_string(p.stages()) + " stages, " +
                           std::to_string(p.workers()) + " at a time"));
  return 1;
}
int pipelines_report(lua_State* L) {
  push(L, std::string_view(of(L).session().get(get<PipelinesObject>(L, 1)->pipelines.report()).str()));
  return 1;
}
int pipelines_actors(lua_State* L) {
  const auto& actors = get<PipelinesObject>(L, 1)->actors();
  lua_createtable(L, static_cast<int>(actors.size()), 0);
  for (size_t i = 0; i < actors.size(); ++i) {
    put<AnyRef>(L, actors[i]);
    lua_rawseti(L, -2, static_cast<lua_Integer>(i) + 1);
  }
  return 1;
}
int pipelines_replace(lua_State* L) {
  get<PipelinesObject>(L, 1)->pipelines.replace(std::string(luaL_checkstring(L, 2)),
                                                std::string(luaL_checkstring(L, 3)));
  return 0;
}
int pipelines_shrink(lua_State* L) {
  const lua_Integer replica = luaL_checkinteger(L, 2);
  if (replica < 0) throw_invalid("[pipelines] replica " + std::to_string(replica) + ": they count from 0");
  get<PipelinesObject>(L, 1)->pipelines.shrink(static_cast<size_t>(replica));
  return 0;
}
int pipelines_to_string(lua_State* L) {
  const auto& p = get<PipelinesObject>(L, 1)->pipelines;
  push(L, std::string_view(std::to_string(p.size()) + " pipelines of " +
                           std::to_string(p.pipeline(0).stages()) + " stages"));
  return 1;
}
// timeline(p[, "step.svg"]): the last step as a picture.
int timeline(lua_State* L) {
  const parallel::StepReport report = get<PipelineObject>(L, 1)->step_report();
  const std::string path = luaL_optstring(L, 2, "timeline.svg");
  tools::write_timeline(path, report);
  push(L, std::string_view(report.str() + "\nwrote " + path));
  return 1;
}

// serve({w, b}, {on = "w1", policy = "bsp", lr = 0.1}), or of a module
int serve(lua_State* L) {
  Tensors start;
  if (auto* module = get_if<ModuleObject>(L, 1)) {
    start = module->made().parameters();
  } else {
    const Value tensors = value_at(L, 1);
    const auto* list = tensors.get_if<ValueList>();
    if (!list)
      throw_invalid("serve(tensors, options) takes a list of tensors or a module, got " + tensors.describe());
    for (const Value& v : *list) {
      if (!v.get_if<Tensor>()) throw_invalid("serve: expected tensors, got " + v.describe());
      start.push_back(*v.get_if<Tensor>());
    }
  }
  ValueMap options = options_at(L, 2);
  Value on;
  if (auto node = options.extract("on"); !node.empty()) on = std::move(node.mapped());
  if (on.is_null())
    throw_invalid(
        "serve(tensors, {on = \"w1\", ...}) needs the worker, or the workers, that the servers are on");
  put<ServedObject>(L, {script::serve_tensors(of(L).session(), on, start, std::move(options))});
  return 1;
}
int push_tensors(lua_State* L, Tensors tensors) {
  lua_createtable(L, static_cast<int>(tensors.size()), 0);
  for (size_t i = 0; i < tensors.size(); ++i) {
    push_tensor(L, std::move(tensors[i]));
    lua_rawseti(L, -2, static_cast<int>(i) + 1);
  }
  return 1;
}
int served_read(lua_State* L) {
  return push_tensors(
      L, of(L).session().get(parallel::read(get<ServedObject>(L, 1).served, luaL_optinteger(L, 2, 0))));
}
int served_set_policy(lua_State* L) {
  of(L).session().get(parallel::set_policy(get<ServedObject>(L, 1).served,
                                           parallel::ServerPolicy::parse(std::string(text_at(L, 2)))));
  return 0;
}
int served_set_options(lua_State* L) {
  of(L).session().get(parallel::set_options(get<ServedObject>(L, 1).served, options_at(L, 2)));
  return 0;
}
int served_report(lua_State* L) {
  const auto reports = of(L).session().get(parallel::report(get<ServedObject>(L, 1).served));
  push(L, script::report_value(reports));
  std::string all;
  for (size_t i = 0; i < reports.size(); ++i) {
    const std::string text = reports[i].str();
    all += (i ? "\n" : "") + text;
    lua_rawgeti(L, -1, static_cast<lua_Integer>(i) + 1);
    show_as(L, text);
    lua_pop(L, 1);
  }
  show_as(L, all);
  return 1;
}
int served_client(lua_State* L) {
  const std::string name(lua_isnoneornil(L, 2) ? "" : text_at(L, 2));
  put<ClientObject>(L, ClientObject(get<ServedObject>(L, 1).served, name));
  return 1;
}
int served_to_string(lua_State* L) {
  const auto& served = get<ServedObject>(L, 1).served;
  push(L, std::string_view(std::to_string(served.shapes.size()) + " tensors in " +
                           std::to_string(served.servers.size()) + " servers"));
  return 1;
}

Tensors list_at(lua_State* L, int at) {
  const Value v = value_at(L, at);
  const auto* list = v.get_if<ValueList>();
  if (!list) throw_invalid("expected a list of tensors, got " + v.describe());
  Tensors out;
  for (const Value& t : *list) out.push_back(t.get_if<Tensor>() ? *t.get_if<Tensor>() : Tensor());
  return out;
}
int client_pull(lua_State* L) {
  ClientObject& c = get<ClientObject>(L, 1);
  const auto step = of(L).step_of(L);
  const script::InStep in(step.get());
  return push_future(L, c.pull(luaL_optinteger(L, 2, 0)), "pull of " + c.name());
}
int client_push(lua_State* L) {
  ClientObject& c = get<ClientObject>(L, 1);
  const Tensors gradients = list_at(L, 2);
  return push_future(L, c.push(of(L).session(), gradients, luaL_optnumber(L, 3, 1)), "push of " + c.name());
}
int client_push_context(lua_State* L) {
  const auto step = step_with_gradients(L, lua_gettop(L) + 1);
  if (!step)
    throw_invalid(
        "push_context pushes the gradients of a context: local step <close> = context() before the pull");
  ClientObject& c = get<ClientObject>(L, 1);
  return push_future(L, c.push_context(of(L).session(), *step, luaL_optnumber(L, 2, 1)),
                     "push of " + c.name());
}
int client_push_values(lua_State* L) {
  ClientObject& c = get<ClientObject>(L, 1);
  const Tensors values = list_at(L, 2);
  return push_future(L, c.push_values(of(L).session(), values, luaL_optnumber(L, 3, 1)),
                     "push of " + c.name());
}
int client_leave(lua_State* L) {
  of(L).session().get(get<ClientObject>(L, 1).leave());
  return 0;
}
int client_to_string(lua_State* L) {
  const auto& c = get<ClientObject>(L, 1);
  push(L, std::string_view("client " + c.name() + ", at version " + std::to_string(c.version())));
  return 1;
}

}  // namespace

void open_parallel(lua_State* L) {
  make_type<PipelineObject>(L, {{"step", guarded<pipeline_step<PipelineObject>>},
                                {"forward", guarded<pipeline_forward<PipelineObject>>},
                                {"report", guarded<pipeline_report>},
                                {"__tostring", guarded<pipeline_to_string>}});
  make_type<PipelinesObject>(L, {{"step", guarded<pipeline_step<PipelinesObject>>},
                                 {"forward", guarded<pipeline_forward<PipelinesObject>>},
                                 {"report", guarded<pipelines_report>},
                                 {"actors", guarded<pipelines_actors>},
                                 {"replace", guarded<pipelines_replace>},
                                 {"shrink", guarded<pipelines_shrink>},
                                 {"__tostring", guarded<pipelines_to_string>}});
  make_type<ServedObject>(L, {{"read", guarded<served_read>},
                              {"set_policy", guarded<served_set_policy>},
                              {"set_options", guarded<served_set_options>},
                              {"report", guarded<served_report>},
                              {"client", guarded<served_client>},
                              {"__tostring", guarded<served_to_string>}});
  make_type<ClientObject>(L, {{"pull", guarded<client_pull>},
                              {"push", guarded<client_push>},
                              {"push_context", guarded<client_push_context>},
                              {"push_values", guarded<client_push_values>},
                              {"leave", guarded<client_leave>},
                              {"__tostring", guarded<client_to_string>}});
  lua_register(L, "pipeline", guarded<make_pipeline>);
  lua_register(L, "pipelines", guarded<make_pipelines>);
  lua_register(L, "measure", guarded<measure_layers>);
  lua_register(L, "plan", guarded<plan_layout>);
  lua_register(L, "timeline", guarded<timeline>);
  lua_register(L, "serve", guarded<serve>);
}

}  // namespace troupe::repl
