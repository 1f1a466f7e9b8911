// optim.* and data.* in Lua.
#include "data/datasets/set_catalog.h"
#include "data/formats/safetensors.h"
#include "data/streams/source_catalog.h"
#include "optim/optim.h"
#include "optim/optimizer_catalog.h"
#include "script/data_sets.h"
#include "script/optimizers.h"
#include "script/parallel.h"
#include "script/replicas.h"
#include "tools/repl/lua/dataset_object.h"
#include "tools/repl/lua/interpreter.h"
#include "tools/repl/lua/objects.h"

namespace troupe::repl {

using OptimizerObject = script::NamedOptimizer;
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

// optim.NAME(what, options): what: actors, replicas of one model, tensors, or a module.
int make_optimizer(lua_State* L) {
  const std::string name(text_at(L, lua_upvalueindex(1)));
  ValueMap options = options_at(L, 2);
  Value what;
  if (auto* module = get_if<ModuleObject>(L, 1))
    what = Codec<Tensors>::to(module->made().parameters());
  else if (const auto* replicas = get_if<ReplicasObject>(L, 1))
    what = Codec<std::vector<AnyRef>>::to((*replicas)->actors());
  else if (const auto* pipelines = get_if<PipelinesObject>(L, 1))
    what = Codec<std::vector<AnyRef>>::to((*pipelines)->actors());
  else
    what = value_at(L, 1);
  put<OptimizerObject>(L, OptimizerObject::make(name, std::move(what), std::move(options)));
  return 1;
}
int optimizer_step(lua_State* L) {
  auto& o = get<OptimizerObject>(L, 1);
  const StepObject step = o.distributed() ? step_with_gradients(L, 2) : nullptr;
  o.step(of(L).session(), step.get(), "opt:step(step), where step is what context() gave");
  return 0;
}
int optimizer_zero_grad(lua_State* L) {
  get<OptimizerObject>(L, 1).zero_grad();
  return 0;
}
int optimizer_clip(lua_State* L) {
  const auto& o = get<OptimizerObject>(L, 1);
  const double most = luaL_checknumber(L, 2);
  const StepObject step = o.distributed() ? step_with_gradients(L, 3) : nullptr;
  lua_pushnumber(L, script::clip_grad_norm({&o}, most, step.get(), "clip_grad_norm(most, step)"));
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
  if (!o.distributed()) throw_invalid("opt:groups() is of the optimizer of actors");
  push(L, Codec<std::vector<std::vector<std::string>>>::to(o.distributed()->parameters_by_group()));
  return 1;
}
// The list at index 1.
std::vector<const OptimizerObject*> optimizers_at_1(lua_State* L, const std::string& call) {
  luaL_checktype(L, 1, LUA_TTABLE);
  std::vector<const OptimizerObject*> optimizers;
  for (lua_Integer i = 1; lua_rawgeti(L, 1, i) != LUA_TNIL; ++i, lua_pop(L, 1)) {
    const auto* o = get_if<OptimizerObject>(L, -1);
    if (!o)
      throw_invalid(call + " takes a list of optimizers; number " + std::to_string(i) + " is a " +
                    luaL_typename(L, -1));
    optimizers.push_back(o);
  }
  lua_pop(L, 1);
  return optimizers;
}
// One step of several optimizers, whole: optim.step_all({a, b}, step).
int step_several(lua_State* L) {
  const auto optimizers = optimizers_at_1(L, "optim.step_all({a, b}, step)");
  const StepObject step = step_with_gradients(L, 2);
  script::step_all({optimizers.begin(), optimizers.end()}, step.get(),
                   "optim.step_all(optimizers, step), where step is what context() gave");
  return 0;
}
// optim.clip_grad_norm({a, b}, most[, step]): one norm over several optimizers.
int clip_several(lua_State* L) {
  const auto given = optimizers_at_1(L, "optim.clip_grad_norm({a, b}, most)");
  const std::vector<const script::NamedOptimizer*> optimizers(given.begin(), given.end());
  const double most = luaL_checknumber(L, 2);
  const bool of_actors =
      std::ranges::any_of(given, [](const auto* o) { return o->distributed() != nullptr; });
  const StepObject step = of_actors ? step_with_gradients(L, 3) : nullptr;
  lua_pushnumber(L, script::clip_grad_norm(optimizers, most, step.get(),
                                           "optim.clip_grad_norm(optimizers, most, step)"));
  return 1;
}
int optimizer_save(lua_State* L) {
  get<OptimizerObject>(L, 1).save(std::string(text_at(L, 2)));
  return 0;
}
int optimizer_load(lua_State* L) {
  get<OptimizerObject>(L, 1).load(std::string(text_at(L, 2)));
  return 0;
}
int optimizer_to_string(lua_State* L) {
  push(L, std::string_view(get<OptimizerObject>(L, 1).str()));
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
  known.push_back({"step_all", "", {}});
  find_entry(known, name, "[optim] unknown optimizer or schedule");
  push(L, name);
  lua_pushcclosure(L, guarded<make_optimizer>, 1);
  return 1;
}

// ---- data sets

int make_dataset(lua_State* L) {
  ValueMap named;
  ValueList positional = arguments_from(L, 1, &named);
  const std::string_view name = text_at(L, lua_upvalueindex(1));
  if (datasets::find_source(name))
    put<SourceObject>(L, {datasets::description_of(name, std::move(positional), std::move(named))});
  else
    put<DatasetObject>(L, script::data_set_of(name, std::move(positional), std::move(named)));
  return 1;
}
// data.of(x, y, {batch = 64}): tensors that the script has.
int dataset_of(lua_State* L) {
  Tensor x = tensor_at(L, 1), y = tensor_at(L, 2);
  put<DatasetObject>(L, script::data_set_of(std::move(x), std::move(y), options_at(L, 3)));
  return 1;
}
int data_index(lua_State* L) {
  const std::string_view name = text_at(L, 2);
  std::vector<Entry> known(datasets::sets().begin(), datasets::sets().end());
  known.insert(known.end(), datasets::sources().begin(), datasets::sources().end());
  for (const char* own : {"of", "mixed", "side_by_side"}) known.push_back({own, "", {}});
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
  put<EpochObject>(L, {d.loader().epoch(epoch)});
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
  push(L, std::string_view(get<DatasetObject>(L, 1).str()));
  return 1;
}

int save(lua_State* L) {
  const std::string path(text_at(L, 1));
  datasets::write_safetensors(path, state_at(L, 2, "save(path, state)"));
  return 0;
}
int load_tensors(lua_State* L) {
  push(L, script::state_value(datasets::read_safetensors(std::string(text_at(L, 1)))));
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
             {{"scheduler", guarded<make_scheduler>},
              {"clip_grad_norm", guarded<clip_several>},
              {"step_all", guarded<step_several>}});
  open_table(L, "data", guarded<data_index>, {{"of", guarded<dataset_of>}});
  lua_register(L, "save", guarded<save>);
  lua_register(L, "load_tensors", guarded<load_tensors>);
}

}  // namespace troupe::repl
