// optim.* and data.* in Lua.
#include "autograd/distributed/optim/distributed_optimizer.h"
#include "data/datasets/set_catalog.h"
#include "data/formats/safetensors.h"
#include "optim/clip.h"
#include "optim/optim.h"
#include "optim/optimizer_catalog.h"
#include "script/parallel.h"
#include "script/replicas.h"
#include "tools/repl/lua/dataset_object.h"
#include "tools/repl/lua/interpreter.h"
#include "tools/repl/lua/objects.h"

namespace troupe::repl {

/// An optimizer of actors, or of tensors here.
struct OptimizerObject {
  std::shared_ptr<optim::DistributedOptimizer> distributed;
  std::shared_ptr<optim::Optimizer> local;
  std::string name;
  optim::Tunable& tunable() const {
    return distributed ? static_cast<optim::Tunable&>(*distributed) : *local;
  }
};
template <>
struct ObjectName<OptimizerObject> {
  static constexpr const char* value = "optimizer";
};

struct ScheduleObject {
  optim::Schedule schedule;
};
template <>
struct ObjectName<ScheduleObject> {
  static constexpr const char* value = "schedule";
};

struct SchedulerObject {
  OptimizerObject optimizer;  // outlives the scheduler
  std::shared_ptr<optim::Scheduler> scheduler;
};
template <>
struct ObjectName<SchedulerObject> {
  static constexpr const char* value = "scheduler";
};

struct EpochObject {
  datasets::Epoch epoch;
  int64_t next = 0;
};
template <>
struct ObjectName<EpochObject> {
  static constexpr const char* value = "batches";
};

namespace {

// ---- optimizers

using OptionGroups = std::vector<optim::DistributedOptimizer::Group>;

// groups = {{params = "*.bias", weight_decay = 0}, ...}: taken out of the options.
OptionGroups take_groups(ValueMap& options) {
  OptionGroups out;
  const auto taken = options.extract("groups");
  if (taken.empty()) return out;
  const auto* list = taken.mapped().get_if<ValueList>();
  if (!list) throw_invalid("[optim] groups is a list of tables, got " + taken.mapped().describe());
  for (const Value& v : *list) {
    const auto* group = v.get_if<ValueMap>();
    const auto params = group ? group->find("params") : ValueMap::const_iterator();
    if (!group || params == group->end())
      throw_invalid("[optim] a group is {params = {\"*.bias\", ...}, option = ...}, got " + v.describe());
    ValueMap own = *group;
    own.erase("params");
    const auto* one = params->second.get_if<std::string>();
    out.push_back(
        {one ? std::vector<std::string>{*one} : Codec<std::vector<std::string>>::from(params->second),
         std::move(own)});
  }
  return out;
}

// optim.NAME(what, options): what: actors, replicas of one model, tensors, or a module.
int make_optimizer(lua_State* L) {
  const std::string name(text_at(L, lua_upvalueindex(1)));
  OptimizerObject out;
  out.name = name;
  ValueMap options = options_at(L, 2);
  std::vector<AnyRef> actors;
  Tensors tensors;
  if (auto* module = get_if<ModuleObject>(L, 1)) {
    tensors = module->made().parameters();
  } else if (const auto* replicas = get_if<ReplicasObject>(L, 1)) {
    actors = **replicas;
  } else if (const auto* pipelines = get_if<PipelinesObject>(L, 1)) {
    actors = (*pipelines)->actors;
  } else {
    Value what = value_at(L, 1);
    if (!what.get_if<ValueList>()) what = ValueList{std::move(what)};
    for (Value& v : *what.get_if<ValueList>()) {
      if (v.get_if<RefValue>())
        actors.push_back(Codec<AnyRef>::from(std::move(v)));
      else if (v.get_if<Tensor>())
        tensors.push_back(*v.get_if<Tensor>());
      else
        throw_invalid("optim." + name + " takes actors, or tensors, or a module; got " + v.describe());
    }
  }
  if (actors.empty() && tensors.empty())
    throw_invalid("optim." + name + "({a, b}, options) takes actors, or tensors, or a module; got none");
  if (!actors.empty() && !tensors.empty())
    throw_invalid("optim." + name + ": an optimizer is of actors or of tensors, not of both");
  OptionGroups groups = take_groups(options);
  if (!groups.empty() && actors.empty())
    throw_invalid("optim." + name +
                  ": groups choose parameters of actors by their names; of tensors here make an optimizer of "
                  "each part");
  if (actors.empty())
    out.local = optim::make(name, options, std::move(tensors));
  else
    out.distributed =
        std::make_shared<optim::DistributedOptimizer>(std::move(actors), name, options, std::move(groups));
  put<OptimizerObject>(L, std::move(out));
  return 1;
}
int optimizer_step(lua_State* L) {
  auto& o = get<OptimizerObject>(L, 1);
  if (o.distributed) {
    const StepObject step = step_with_gradients(L, 2);
    if (!step)
      throw_invalid(
          "the optimizer of actors steps with the gradients of a context: opt:step(step), where step is what "
          "context() gave");
    of(L).session().get(o.distributed->step_async(step->context()));
  } else {
    o.local->step();
  }
  return 0;
}
int optimizer_zero_grad(lua_State* L) {
  auto& o = get<OptimizerObject>(L, 1);
  if (o.local) o.local->zero_grad();  // the gradients of actors end with their context
  return 0;
}
int optimizer_clip(lua_State* L) {
  auto& o = get<OptimizerObject>(L, 1);
  const double most = luaL_checknumber(L, 2);
  if (o.local) {
    lua_pushnumber(L, optim::clip_grad_norm_(o.local->params(), most));
    return 1;
  }
  const StepObject step = step_with_gradients(L, 3);
  if (!step) throw_invalid("clip_grad_norm(most, step) of actors needs the context that has the gradients");
  lua_pushnumber(L, o.distributed->clip_grad_norm(step->context(), most));
  return 1;
}
// opt:options([changes[, group]]): of all groups, or of one.
int optimizer_options(lua_State* L) {
  optim::Tunable& o = get<OptimizerObject>(L, 1).tunable();
  const ValueMap changes = options_at(L, 2);
  const bool one = !lua_isnoneornil(L, 3);
  const lua_Integer group = one ? luaL_checkinteger(L, 3) : 0;
  if (group < 0 || static_cast<size_t>(group) >= o.group_count())
    throw_invalid("[optim] there is no group " + std::to_string(group) + ": there are " +
                  std::to_string(o.group_count()) + ", from 0");
  if (!changes.empty())
    for (size_t g = 0; g < o.group_count(); ++g)
      if (!one || g == static_cast<size_t>(group)) o.change_options(g, changes);
  push(L, Value(o.options_map(static_cast<size_t>(group))));
  return 1;
}
// opt:groups(): what each is for.
int optimizer_groups(lua_State* L) {
  const auto& o = get<OptimizerObject>(L, 1);
  if (!o.distributed) throw_invalid("opt:groups() is of the optimizer of actors");
  push(L, Codec<std::vector<std::vector<std::string>>>::to(o.distributed->parameters_by_group()));
  return 1;
}
// optim.clip_grad_norm({a, b}, most[, step]): one norm over several optimizers.
int clip_several(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  const double most = luaL_checknumber(L, 2);
  std::vector<optim::ContextGradients> of_actors;
  Tensors here;
  for (lua_Integer i = 1; lua_rawgeti(L, 1, i) != LUA_TNIL; ++i, lua_pop(L, 1)) {
    const auto* o = get_if<OptimizerObject>(L, -1);
    if (!o)
      throw_invalid("optim.clip_grad_norm({a, b}, most) takes a list of optimizers; number " +
                    std::to_string(i) + " is a " + luaL_typename(L, -1));
    if (o->distributed) {
      of_actors.push_back(o->distributed->gradients());
    } else {
      const Tensors& params = o->local->params();
      here.insert(here.end(), params.begin(), params.end());
    }
  }
  if (of_actors.empty() == here.empty())
    throw_invalid(here.empty()
                      ? "optim.clip_grad_norm({a, b}, most) takes a list of optimizers; got none"
                      : "optim.clip_grad_norm: the optimizers are of actors, whose gradients are in a "
                        "context, or of tensors here, not of both");
  if (of_actors.empty()) {
    lua_pushnumber(L, optim::clip_grad_norm_(here, most));
    return 1;
  }
  const StepObject step = step_with_gradients(L, 3);
  if (!step)
    throw_invalid(
        "optim.clip_grad_norm(optimizers, most, step) of actors needs the context that has the gradients");
  lua_pushnumber(L, optim::clip_grad_norm(step->context(), std::move(of_actors), most));
  return 1;
}
int optimizer_save(lua_State* L) {
  auto& o = get<OptimizerObject>(L, 1);
  const std::string path(text_at(L, 2));
  if (o.local)
    datasets::write_safetensors(path, o.local->state());
  else
    o.distributed->save(path);
  return 0;
}
int optimizer_load(lua_State* L) {
  auto& o = get<OptimizerObject>(L, 1);
  const std::string path(text_at(L, 2));
  if (o.local)
    o.local->load_state(datasets::read_safetensors(path));
  else
    o.distributed->load(path);
  return 0;
}
int optimizer_to_string(lua_State* L) {
  const auto& o = get<OptimizerObject>(L, 1);
  push(L, std::string_view(o.name + " " + text_of(Value(o.tunable().options_map(0)))));
  return 1;
}
int make_schedule(lua_State* L) {
  ValueMap named;
  ValueList positional = arguments_from(L, 1, &named);
  for (const auto& s : optim::schedules())
    if (s.name == text_at(L, lua_upvalueindex(1))) {
      put<ScheduleObject>(L, {s(std::move(positional), std::move(named))});
      return 1;
    }
  return 0;
}
int schedule_call(lua_State* L) {
  lua_pushnumber(L, get<ScheduleObject>(L, 1).schedule(luaL_checknumber(L, 2), luaL_checkinteger(L, 3)));
  return 1;
}
// optim.scheduler(opt, schedule[, option])
int make_scheduler(lua_State* L) {
  const auto& optimizer = get<OptimizerObject>(L, 1);
  SchedulerObject out{optimizer, nullptr};
  out.scheduler = std::make_shared<optim::Scheduler>(
      out.optimizer.tunable(), get<ScheduleObject>(L, 2).schedule, luaL_optstring(L, 3, "lr"));
  put<SchedulerObject>(L, std::move(out));
  return 1;
}
int scheduler_step(lua_State* L) {
  get<SchedulerObject>(L, 1).scheduler->step();
  return 0;
}
int optim_index(lua_State* L) {
  const std::string_view name = text_at(L, 2);
  std::vector<Entry> known(optim::optimizers().begin(), optim::optimizers().end());
  for (const auto& s : optim::schedules()) {
    if (s.name == name) {
      push(L, name);
      lua_pushcclosure(L, guarded<make_schedule>, 1);
      return 1;
    }
    known.push_back(s);
  }
  known.push_back({"scheduler", "", {}});
  known.push_back({"clip_grad_norm", "", {}});
  find_entry(known, name, "[optim] unknown optimizer or schedule");
  push(L, name);
  lua_pushcclosure(L, guarded<make_optimizer>, 1);
  return 1;
}

// ---- data sets

template <class T>
bool take(ValueMap& named, std::initializer_list<const char*> names, T& into) {
  bool found = false;
  for (const char* name : names)
    if (auto node = named.extract(name); !node.empty()) {
      into = Codec<T>::from(fitted(std::move(node.mapped()), Codec<T>::name()));
      found = true;
    }
  return found;
}
void take_loader_options(ValueMap& named, datasets::LoaderOptions& into) {
  take(named, {"batch", "batch_size"}, into.batch_size);
  take(named, {"shuffle"}, into.shuffle);
  take(named, {"drop_last"}, into.drop_last);
  take(named, {"rank"}, into.rank);
  take(named, {"ranks"}, into.ranks);
  if (std::string shard; take(named, {"shard"}, shard)) {
    if (shard != "pad" && shard != "drop")
      throw_invalid("[data] shard must be \"pad\" or \"drop\", got \"" + shard + "\"");
    into.shard = shard == "pad" ? datasets::Uneven::pad : datasets::Uneven::drop;
  }
  int64_t seed = static_cast<int64_t>(into.seed);
  take(named, {"order_seed"}, seed);
  into.seed = static_cast<uint64_t>(seed);
}
int make_dataset(lua_State* L) {
  ValueMap named;
  ValueList positional = arguments_from(L, 1, &named);
  DatasetObject out;
  take_loader_options(named, out.options);
  for (const auto& s : datasets::sets())
    if (s.name == text_at(L, lua_upvalueindex(1))) out.set = s(std::move(positional), std::move(named));
  put<DatasetObject>(L, std::move(out));
  return 1;
}
// data.of(x, y, {batch = 64}): tensors that the script has.
int dataset_of(lua_State* L) {
  DatasetObject out;
  out.set = {tensor_at(L, 1), tensor_at(L, 2)};
  ValueMap named = options_at(L, 3);
  take_loader_options(named, out.options);
  if (!named.empty())
    throw_invalid("data.of has no option \"" + named.begin()->first +
                  "\"; there are: batch, shuffle, drop_last, rank, ranks, shard, order_seed");
  put<DatasetObject>(L, std::move(out));
  return 1;
}
int data_index(lua_State* L) {
  const std::string_view name = text_at(L, 2);
  std::vector<Entry> known(datasets::sets().begin(), datasets::sets().end());
  known.push_back({"of", "", {}});
  find_entry(known, name, "[data] unknown data set");
  push(L, name);
  lua_pushcclosure(L, guarded<make_dataset>, 1);
  return 1;
}
int next_batch(lua_State* L) {
  auto& e = get<EpochObject>(L, 1);
  script::Session::check();
  if (e.next >= e.epoch.batches()) return 0;
  datasets::Batch batch = e.epoch.batch(e.next++);
  push_tensor(L, std::move(batch.x));
  push_tensor(L, std::move(batch.y));
  return 2;
}
int dataset_batches(lua_State* L) {
  auto& d = get<DatasetObject>(L, 1);
  const int64_t epoch = lua_isnoneornil(L, 2) ? d.epoch++ : luaL_checkinteger(L, 2);
  lua_pushcfunction(L, guarded<next_batch>);
  put<EpochObject>(L, {datasets::Loader(d.set, d.options).epoch(epoch)});
  return 2;
}
// d:rows(from, count): some of it.
int dataset_rows(lua_State* L) {
  auto& d = get<DatasetObject>(L, 1);
  DatasetObject out = d;
  out.set = datasets::rows(d.set, luaL_checkinteger(L, 2), luaL_checkinteger(L, 3));
  put<DatasetObject>(L, std::move(out));
  return 1;
}
int dataset_length(lua_State* L) {
  lua_pushinteger(L, get<DatasetObject>(L, 1).set.size());
  return 1;
}
int dataset_index(lua_State* L) {
  auto& d = get<DatasetObject>(L, 1);
  const std::string_view name = text_at(L, 2);
  if (name == "x") return push_tensor(L, d.set.x), 1;
  if (name == "y") return push_tensor(L, d.set.y), 1;
  if (!push_method(L)) throw_invalid("a data set has x, y, batches, rows; not \"" + std::string(name) + "\"");
  return 1;
}
int dataset_to_string(lua_State* L) {
  auto& d = get<DatasetObject>(L, 1);
  push(L,
       std::string_view("data set of " + std::to_string(d.set.size()) + ": x " + d.set.x.summary() + ", y " +
                        d.set.y.summary() + ", in batches of " + std::to_string(d.options.batch_size)));
  return 1;
}

int save(lua_State* L) {
  const std::string path(text_at(L, 1));
  datasets::write_safetensors(path, state_at(L, 2, "save(path, state)"));
  return 0;
}
int load_tensors(lua_State* L) {
  ValueMap out;
  for (auto& [name, t] : datasets::read_safetensors(std::string(text_at(L, 1)))) out[name] = t;
  push(L, Value(std::move(out)));
  return 1;
}

}  // namespace

void open_training(lua_State* L) {
  make_type<OptimizerObject>(L, {{"step", guarded<optimizer_step>},
                                 {"zero_grad", guarded<optimizer_zero_grad>},
                                 {"clip_grad_norm", guarded<optimizer_clip>},
                                 {"options", guarded<optimizer_options>},
                                 {"groups", guarded<optimizer_groups>},
                                 {"save", guarded<optimizer_save>},
                                 {"load", guarded<optimizer_load>},
                                 {"__tostring", guarded<optimizer_to_string>}});
  make_type<ScheduleObject>(L, {{"__call", guarded<schedule_call>}});
  make_type<SchedulerObject>(L, {{"step", guarded<scheduler_step>}});
  make_type<EpochObject>(L, {});
  make_type<DatasetObject>(L, {{"batches", guarded<dataset_batches>},
                               {"rows", guarded<dataset_rows>},
                               {"__len", guarded<dataset_length>},
                               {"__tostring", guarded<dataset_to_string>}});
  luaL_getmetatable(L, ObjectName<DatasetObject>::value);
  lua_pushcfunction(L, guarded<dataset_index>);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
  open_table(L, "optim", guarded<optim_index>,
             {{"scheduler", guarded<make_scheduler>}, {"clip_grad_norm", guarded<clip_several>}});
  open_table(L, "data", guarded<data_index>, {{"of", guarded<dataset_of>}});
  lua_register(L, "save", guarded<save>);
  lua_register(L, "load_tensors", guarded<load_tensors>);
}

}  // namespace troupe::repl
