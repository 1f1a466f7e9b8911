// Workers, actors, calls and contexts in Lua.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "actors/worker/guests.h"
#include "autograd/distributed/optim/module_actor.h"
#include "core/base/error.h"
#include "rref/ref_messages.h"
#include "script/show.h"
#include "tools/repl/lua/interpreter.h"
#include "tools/repl/lua/objects.h"
#include "troupe/watch/questions.h"

namespace troupe::repl {

StepObject step_with_gradients(lua_State* L, int at) {
  const StepObject step = lua_isnoneornil(L, at) ? of(L).step_of(L) : get<StepObject>(L, at);
  if (step)
    for (const auto& pass : step->take_passes()) of(L).session().get(pass);
  return step;
}

namespace {

// ---- references

int push_call(lua_State* L, const AnyRef& actor, const std::string& method, int first) {
  Interpreter& interpreter = of(L);
  script::Session& session = interpreter.session();
  std::vector<script::CallArgument> arguments;
  ValueMap named;
  const int last = lua_gettop(L);
  for (int i = first; i <= last; ++i)
    if (auto* f = get_if<FutureObject>(L, i)) {
      arguments.push_back({.answer = f});
    } else {
      ValueList one = arguments_from(L, i, i == last ? &named : nullptr, i);
      if (!one.empty()) arguments.push_back({std::move(one[0])});
    }
  // A map as the last argument may be meant as one.
  if (!named.empty() && !script::names_parameters(session, actor, method, named))
    arguments.push_back({std::exchange(named, {})});
  put<FutureObject>(L, FutureObject(script::call(session, actor, method, std::move(arguments),
                                                 std::move(named), interpreter.step_of(L))));
  return 1;
}

int call_method(lua_State* L) {
  const AnyRef actor = get<AnyRef>(L, 1);
  return push_call(L, actor, std::string(text_at(L, lua_upvalueindex(1))), 2);
}
int call_forward(lua_State* L) {
  const AnyRef actor = get<AnyRef>(L, 1);
  return push_call(L, actor, "forward", 2);
}
int reference_index(lua_State* L) {
  const AnyRef& actor = get<AnyRef>(L, 1);
  const std::string_view name = text_at(L, 2);
  if (name == "worker") return push(L, std::string_view(actor.owner_name())), 1;
  if (name == "type") return push(L, std::string_view(actor.type())), 1;
  // A method of the actor goes before one that all references have.
  const std::vector<Entry> methods = of(L).session().methods(actor);
  bool own = false;
  for (const Entry& m : methods) own |= m.name == name;
  if (!own) {
    if (push_method(L)) return 1;
    find_entry(methods, name, "[call] " + actor.type() + " has no method");
  }
  push(L, name);
  lua_pushcclosure(L, guarded<call_method>, 1);
  return 1;
}
int reference_to_string(lua_State* L) {
  push(L, std::string_view(get<AnyRef>(L, 1).str()));
  return 1;
}
int same_reference(lua_State* L) {
  auto *a = get_if<AnyRef>(L, 1), *b = get_if<AnyRef>(L, 2);
  lua_pushboolean(L, a && b && *a == *b);
  return 1;
}
int set_name(lua_State* L) {
  of(L).session().get(of(L).cluster().set_name(get<AnyRef>(L, 1), std::string(text_at(L, 2))));
  return 0;
}

int state_dict(lua_State* L) {
  push(L, script::state_value(of(L).session().get(nn::remote_state_dict(get<AnyRef>(L, 1)))));
  return 1;
}
int load_state_dict(lua_State* L) {
  of(L).session().get(
      nn::load_remote_state_dict(get<AnyRef>(L, 1), state_at(L, 2, "a:load_state_dict(state)")));
  return 0;
}
int train(lua_State* L) {
  of(L).session().get(nn::set_remote_training(get<AnyRef>(L, 1), lua_isnone(L, 2) || lua_toboolean(L, 2)));
  return 0;
}

// spawn("Half", "w1", 784, 256), spawn("Half", "w1", {out = 256, ["in"] = 784})
int spawn(lua_State* L) {
  const std::string type(text_at(L, 1));
  const Place where = lua_isinteger(L, 2) ? Place(static_cast<int64_t>(lua_tointeger(L, 2)))
                                          : Place(std::string(text_at(L, 2)));
  script::Session& session = of(L).session();
  ValueMap named;
  ValueList args = arguments_from(L, 3, &named);
  // A map that is no set of parameter names is the last argument.
  if (!named.empty() && !script::names_parameters(session, type, where, named))
    args.emplace_back(std::exchange(named, {}));
  put<AnyRef>(L, session.spawn(type, where, std::move(args), std::move(named)));
  return 1;
}
int lookup(lua_State* L) {
  put<AnyRef>(L, of(L).session().get(of(L).cluster().here().lookup_any(std::string(text_at(L, 1)))));
  return 1;
}
int workers(lua_State* L) {
  ValueList names;
  for (const std::string& name : of(L).session().cluster().workers()) names.emplace_back(name);
  push(L, Value(std::move(names)));
  return 1;
}
int types(lua_State* L) {
  script::Session& session = of(L).session();
  const Place where =
      lua_isnoneornil(L, 1) ? Place(session.cluster().workers().back()) : Place(std::string(text_at(L, 1)));
  ValueList names;
  for (const auto& t : session.types(where.in(session.worker().members()))) names.emplace_back(t.name);
  push(L, Value(std::move(names)));
  return 1;
}
int make_cluster(lua_State* L) {
  of(L).remake_cluster(L, static_cast<int>(luaL_optinteger(L, 1, 0)));
  return workers(L);
}
// all{f, g}: the values of several futures, in order.
int all_of(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  push(L, value_at(L, 1));
  return 1;
}

// ---- contexts

int make_context(lua_State* L) {
  Interpreter& interpreter = of(L);
  auto step = std::make_shared<script::Step>(interpreter.session().worker());
  interpreter.enter(L, step);
  put<StepObject>(L, step);
  return 1;
}
Tensors tensors_at(lua_State* L, int at) {
  const Value v = value_at(L, at);
  if (v.is_null()) return {};
  if (const auto* t = v.get_if<Tensor>()) return {*t};
  Tensors out;
  if (const auto* list = v.get_if<ValueList>())
    for (const Value& element : *list) {
      if (!element.get_if<Tensor>()) throw_invalid("expected tensors, got " + element.describe());
      out.push_back(*element.get_if<Tensor>());
    }
  else
    throw_invalid("expected a tensor or a list of tensors, got " + v.describe());
  return out;
}
autograd::BackwardOptions pass_options(lua_State* L, int at) {
  autograd::BackwardOptions out;
  for (const auto& [name, value] : options_at(L, at)) {
    const bool* on = value.get_if<bool>();
    if (on && name == "retain_graph")
      out.retain_graph = *on;
    else if (on && name == "create_graph")
      out.create_graph = *on;
    else
      throw_invalid("a backward pass has the options retain_graph and create_graph, true or false; got " +
                    name);
  }
  return out;
}
int context_backward(lua_State* L) {
  const StepObject step = get<StepObject>(L, 1);
  const Tensors roots = tensors_at(L, 2), grads = tensors_at(L, 3);
  script::Session& session = of(L).session();
  const autograd::Context::Guard in(step->context());
  session.get_pass(*step, step->context().backward_async(roots, grads, pass_options(L, 4)));
  return 0;
}
int context_grad(lua_State* L) {
  const StepObject step = step_with_gradients(L, 1);
  // step:grad(w): of a leaf here; step:grad(outputs, inputs): of any inputs.
  if (lua_isnone(L, 3)) {
    push_tensor(L, step->context().grad(tensor_at(L, 2)));
    return 1;
  }
  if (lua_isnil(L, 3)) throw_invalid("step:grad(outputs, inputs): the inputs are nil");
  const Tensors outputs = tensors_at(L, 2), inputs = tensors_at(L, 3), grads = tensors_at(L, 4);
  const autograd::Context::Guard in(step->context());
  Tensors found =
      of(L).session().get_pass(*step, step->context().grad_async(outputs, inputs, grads, pass_options(L, 5)));
  for (Tensor& t : found) push_tensor(L, std::move(t));
  return static_cast<int>(found.size());
}
int context_close(lua_State* L) {
  get<StepObject>(L, 1)->close();
  return 0;
}
int context_to_string(lua_State* L) {
  const StepObject& step = get<StepObject>(L, 1);
  push(L, std::string_view(step->open() ? fmt::format("context {:x}", step->context().id())
                                        : std::string("context, closed")));
  return 1;
}

// ---- what goes on

// What each worker says.
template <class Ask>
auto ask_all(lua_State* L, Ask ask) {
  script::Session& session = of(L).session();
  std::vector<decltype(ask(session.worker(), WorkerId()))> asked;
  for (const std::string& name : session.cluster().workers())
    asked.push_back(ask(session.worker(), Place(name).in(session.worker().members())));
  std::vector<std::decay_t<decltype(session.get(asked[0]))>> out;
  for (const auto& f : asked) out.push_back(session.get(f));
  return out;
}
void write_out(const std::string& text) {
  const std::string out = script::harmless(text, 1 << 16);
  std::fwrite(out.data(), 1, out.size(), stdout);
}

// The actors behind a reference, a served, or a list of them.
std::vector<AnyRef> actors_at(lua_State* L, int at, const char* call, int depth = 0) {
  if (auto* served = get_if<ServedObject>(L, at))
    return {served->served.servers.begin(), served->served.servers.end()};
  if (auto* actor = get_if<AnyRef>(L, at)) return {*actor};
  if (!lua_istable(L, at))
    throw_invalid(std::string(call) + " takes an actor, what serve() gave, or a list of these; got " +
                  luaL_typename(L, at));
  enter_table(L, depth, "is no list of actors");
  std::vector<AnyRef> out;
  const auto length = static_cast<lua_Integer>(lua_rawlen(L, at));
  for (lua_Integer i = 1; i <= length; ++i) {
    lua_rawgeti(L, at, i);
    for (AnyRef& actor : actors_at(L, lua_gettop(L), call, depth + 1)) out.push_back(std::move(actor));
    lua_pop(L, 1);
  }
  return out;
}
std::vector<script::WorkerReport> reports_of_all(lua_State* L) {
  return ask_all(L, [](auto& worker, WorkerId id) { return internal::actors::ask_report(worker, id); });
}
// ps(), ps(actors)
int ps(lua_State* L) {
  std::optional<std::vector<AnyRef>> wanted;
  if (!lua_isnone(L, 1)) wanted = actors_at(L, 1, "ps(actors)");
  const auto reports = reports_of_all(L);
  size_t wide = 28;  // the column of actors
  for (const auto& report : reports)
    for (const auto& actor : report.actors) wide = std::max(wide, actor.label.size());
  std::string out = fmt::format("{:<8} {:<{}} {:<30} {:>9}\n", "worker", "actor", wide, "doing", "for");
  for (const auto& report : reports) {
    if (report.actors.empty() && !wanted) out += fmt::format("{:<8} -\n", report.worker);
    for (const auto& actor : report.actors) {
      if (wanted && std::ranges::none_of(*wanted, [&](const AnyRef& a) { return a.id() == actor.id; }))
        continue;
      const bool idle = actor.doing.empty() || actor.seconds < 0.01;  // what it has just begun, or just ended
      out += fmt::format("{:<8} {:<{}} {:<30} {:>9}\n", report.worker, actor.label, wide,
                         idle ? "-" : actor.doing, idle ? "" : fmt::format("{:.1f} s", actor.seconds));
    }
  }
  write_out(out);
  return 0;
}
int waits(lua_State* L) {
  internal::watch::Questions questions(of(L).session().worker(), "");
  write_out(internal::watch::waits_text(questions.waits()));
  return 0;
}
Value inspected(lua_State* L, const AnyRef& actor) {
  script::Session& session = of(L).session();
  const auto report = session.get(internal::actors::ask_report(session.worker(), actor.owner()));
  ValueMap out{{"worker", report.worker}, {"type", actor.type()}, {"id", actor.str()}};
  for (const auto& a : report.actors)
    if (a.id == actor.id()) {
      out["doing"] = a.doing.empty() ? Value() : Value(a.doing);
      if (!a.doing.empty()) out["seconds"] = a.seconds;
    }
  return out;
}
// actor("Half#1"), actor("Half#0:3 on w1"): a reference to what ps() lists.
int find_actor(lua_State* L) {
  const std::string name(text_at(L, 1));
  std::vector<ObjectId> found;
  std::vector<std::string> labels;
  for (const auto& report : reports_of_all(L))
    for (const auto& a : report.actors) {
      labels.push_back(a.label);
      if (a.label == name || a.label.starts_with(name + " on ")) found.push_back(a.id);
    }
  if (found.size() > 1)
    throw_invalid("[actor] several workers have a " + name + ": write \"" + name + " on w1\"");
  if (found.empty()) {
    const std::string near = nearest(name, labels);
    throw_invalid("[actor] no actor is '" + name + "'; " +
                  (near.empty() ? "ps() lists those that there are" : "did you mean '" + near + "'?"));
  }
  script::Session& session = of(L).session();
  const ObjectId id = found[0];
  put<AnyRef>(L, Codec<AnyRef>::from(session.get(
                     internal::rref::kRefer.ask(session.worker(), id.owner, id.creator, id.number))));
  return 1;
}
// inspect(actor), inspect(served)
int inspect(lua_State* L) {
  if (auto* actor = get_if<AnyRef>(L, 1)) return push(L, inspected(L, *actor)), 1;
  if (!get_if<ServedObject>(L, 1)) luaL_typeerror(L, 1, "reference or served");
  const parallel::Served served = get<ServedObject>(L, 1).served;
  const auto states = of(L).session().get(parallel::report(served));
  ValueList out;
  for (size_t i = 0; i < served.servers.size(); ++i) {
    Value one = inspected(L, served.servers[i]);
    (*one.get_if<ValueMap>())["state"] = states[i].str();
    out.push_back(std::move(one));
  }
  push(L, Value(std::move(out)));
  return 1;
}
int metrics(lua_State* L) {
  ValueMap out;
  for (const auto& [name, count] : of(L).session().cluster().metrics(std::string(text_at(L, 1))))
    out[name] = count;
  push(L, Value(std::move(out)));
  return 1;
}

}  // namespace

void open_cluster(lua_State* L) {
  make_type<AnyRef>(L, {{"__call", guarded<call_forward>},
                        {"__tostring", guarded<reference_to_string>},
                        {"__eq", guarded<same_reference>},
                        {"set_name", guarded<set_name>},
                        {"state_dict", guarded<state_dict>},
                        {"load_state_dict", guarded<load_state_dict>},
                        {"train", guarded<train>}});
  luaL_getmetatable(L, ObjectName<AnyRef>::value);
  lua_pushcfunction(L, guarded<reference_index>);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
  make_type<StepObject>(L, {{"backward", guarded<context_backward>},
                            {"grad", guarded<context_grad>},
                            {"close", guarded<context_close>},
                            {"__close", guarded<context_close>},
                            {"__tostring", guarded<context_to_string>}});
  for (const auto& [name, f] : std::initializer_list<Function>{{"spawn", guarded<spawn>},
                                                               {"lookup", guarded<lookup>},
                                                               {"workers", guarded<workers>},
                                                               {"types", guarded<types>},
                                                               {"cluster", guarded<make_cluster>},
                                                               {"all", guarded<all_of>},
                                                               {"context", guarded<make_context>},
                                                               {"ps", guarded<ps>},
                                                               {"waits", guarded<waits>},
                                                               {"inspect", guarded<inspect>},
                                                               {"actor", guarded<find_actor>},
                                                               {"metrics", guarded<metrics>}})
    lua_register(L, name, f);
}

}  // namespace troupe::repl
