// job() and keep{} in Lua.
#include "core/codec/keep.h"
#include "tools/repl/lua/dataset_object.h"
#include "tools/repl/lua/interpreter.h"
#include "tools/repl/lua/objects.h"
#include "troupe/job/job.h"

namespace troupe::repl {
namespace {

// ---- keep{}

// Weak maps of the registry: tables to what keeps them, which ends with its table; and back.
const char kKeeps = 0, kTables = 0;

// The string keys of a table, and what is behind them.
class TableKeep final : public Stateful {
 public:
  explicit TableKeep(lua_State* L) {
    lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_MAINTHREAD);
    main_ = lua_tothread(L, -1);  // a coroutine may be gone before its tables
    lua_pop(L, 1);
  }
  StateDict state() const override {
    Value whole;
    call(guarded<read>, whole);
    StateDict out;
    internal::pack(out, kName, whole);
    return out;
  }
  void load_state(const StateDict& state) override {
    Value whole = internal::unpack(state, kName);
    call(guarded<write>, whole);
  }
  std::string state_name() const override { return "keep"; }

 private:
  static constexpr const char* kName = "table";

  // Calls f(table, value): errors of Lua must not jump over what is here.
  void call(lua_CFunction f, Value& value) const {
    lua_State* L = main_;
    if (!lua_checkstack(L, 8)) throw_invalid("[keep] too many calls within each other");
    lua_pushcfunction(L, f);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &kTables);
    lua_rawgetp(L, -1, this);
    lua_remove(L, -2);
    lua_pushlightuserdata(L, &value);
    if (lua_pcall(L, 2, 0, 0) == LUA_OK) return;
    const std::string why(text_at(L, -1));
    lua_pop(L, 1);
    throw_invalid("[keep] " + why);
  }
  static Value& value_of(lua_State* L) { return *static_cast<Value*>(lua_touserdata(L, 2)); }
  static int read(lua_State* L) {
    value_of(L) = value_at(L, 1);
    return 0;
  }
  static int write(lua_State* L) {
    auto* map = value_of(L).get_if<ValueMap>();
    for (lua_pushnil(L); lua_next(L, 1);) {
      lua_pop(L, 1);
      lua_pushvalue(L, -1);
      lua_pushnil(L);
      lua_rawset(L, 1);
    }
    if (!map) return 0;  // an empty table is a list
    for (auto& [key, x] : *map) {
      push(L, std::string_view(key));
      push(L, std::move(x));
      lua_rawset(L, 1);
    }
    return 0;
  }
  lua_State* main_;
};

struct KeepObject {
  std::unique_ptr<TableKeep> keep;
};

}  // namespace

template <>
struct ObjectName<KeepObject> {
  static constexpr const char* value = "keep";
};

namespace {

int keep(lua_State* L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  const Value now = value_at(L, 1);
  if (const auto* list = now.get_if<ValueList>(); list && !list->empty())
    throw_invalid("keep{} takes names: keep{best = 0, losses = {}}");
  lua_rawgetp(L, LUA_REGISTRYINDEX, &kKeeps);
  lua_pushvalue(L, 1);
  if (lua_rawget(L, 2) == LUA_TNIL) {
    lua_pushvalue(L, 1);
    const TableKeep* made = put<KeepObject>(L, {std::make_unique<TableKeep>(L)}).keep.get();
    lua_rawset(L, 2);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &kTables);
    lua_pushvalue(L, 1);
    lua_rawsetp(L, -2, made);
  }
  lua_settop(L, 1);
  return 1;
}

void open_weak(lua_State* L, const void* key, const char* mode) {
  lua_newtable(L);
  lua_newtable(L);
  push(L, std::string_view(mode));
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
  lua_rawsetp(L, LUA_REGISTRYINDEX, key);
}

// ---- job()

// Twice: what finalizers let go is garbage then.
void collect_garbage(lua_State* L) {
  lua_gc(L, LUA_GCCOLLECT);
  lua_gc(L, LUA_GCCOLLECT);
}

struct JobObject {
  std::shared_ptr<std::unique_ptr<Job>> job;  // ends with the cluster
  Job& get() const {
    if (!*job) throw_invalid("[job] its cluster has ended");
    return **job;
  }
};

// A loop over a job's steps, or over the batches of a data set.
struct LoopObject {
  JobObject job;
  std::unique_ptr<Job::Steps> steps;
  std::unique_ptr<Job::Batches> batches;
  std::optional<Job::Iterator> step, last_step;
  std::optional<Job::Batches::Iterator> batch, last_batch;
  bool begun = false;
};

}  // namespace

template <>
struct ObjectName<JobObject> {
  static constexpr const char* value = "job";
};
template <>
struct ObjectName<LoopObject> {
  static constexpr const char* value = "loop";
};

namespace {

int make_job(lua_State* L) {
  collect_garbage(L);  // what a script has dropped is no state
  Interpreter& interpreter = of(L);
  (void)interpreter.session();  // there is a cluster
  JobObject out{std::make_shared<std::unique_ptr<Job>>(
      std::make_unique<Job>(interpreter.cluster(), luaL_optstring(L, 1, "")))};
  internal::before_checkpoints(**out.job, [L = interpreter.state()] { collect_garbage(L); });
  interpreter.at_end_of_cluster([job = std::weak_ptr(out.job)] {
    if (const auto alive = job.lock()) alive->reset();
  });
  put<JobObject>(L, std::move(out));
  return 1;
}

// On to the next step; false: there is none. Where the job is asked to end, the script does, whatever it
// catches.
template <class Iterator>
bool next(lua_State* L, LoopObject& loop, std::optional<Iterator>& at, const std::optional<Iterator>& last) {
  script::Session::check();
  (void)loop.job.get();
  if (!at) return false;
  try {
    if (std::exchange(loop.begun, true)) ++*at;
    return *at != *last;
  } catch (const internal::StopEnd&) {
    at.reset();
    of(L).exit(128 + internal::stop_asked());
    throw;
  }
}
int next_step_of_job(lua_State* L) {
  auto& loop = get<LoopObject>(L, lua_upvalueindex(1));
  if (!next(L, loop, loop.step, loop.last_step)) return 0;
  lua_pushinteger(L, **loop.step);
  return 1;
}
int next_batch_of_job(lua_State* L) {
  auto& loop = get<LoopObject>(L, lua_upvalueindex(1));
  if (!next(L, loop, loop.batch, loop.last_batch)) return 0;
  Job::Batch batch = **loop.batch;
  push_tensor(L, std::move(batch.x));
  push_tensor(L, std::move(batch.y));
  lua_pushinteger(L, batch.epoch);
  lua_pushboolean(L, batch.last);
  return 4;
}
// What a `for` takes. It closes the loop however it ends: who waits for its step waits no longer.
int push_loop(lua_State* L, LoopObject loop, lua_CFunction next) {
  put<LoopObject>(L, std::move(loop));
  const int at = lua_gettop(L);
  lua_pushvalue(L, at);
  lua_pushcclosure(L, next, 1);
  lua_pushnil(L);
  lua_pushnil(L);
  lua_pushvalue(L, at);
  return 4;
}
int close_loop(lua_State* L) {
  auto& loop = get<LoopObject>(L, 1);
  loop.step.reset();
  loop.batch.reset();
  return 0;
}
// job:steps([total])
int job_steps(lua_State* L) {
  const lua_Integer total = luaL_optinteger(L, 2, Job::no_end);
  if (total < 0) throw_invalid("[job] steps(" + std::to_string(total) + "): expected 0 or more");
  LoopObject loop{.job = get<JobObject>(L, 1)};
  loop.steps = std::make_unique<Job::Steps>(loop.job.get().steps(total));
  loop.step = loop.steps->begin(), loop.last_step = loop.steps->end();
  return push_loop(L, std::move(loop), guarded<next_step_of_job>);
}
// job:batches(set, epochs)
int job_batches(lua_State* L) {
  const auto& set = get<DatasetObject>(L, 2);
  const lua_Integer epochs = luaL_checkinteger(L, 3);
  if (epochs < 0) throw_invalid("[job] " + std::to_string(epochs) + " epochs: expected 0 or more");
  LoopObject loop{.job = get<JobObject>(L, 1)};
  loop.batches =
      std::make_unique<Job::Batches>(loop.job.get().batches(datasets::Loader(set.set, set.options), epochs));
  const Job::Batches& batches = *loop.batches;
  loop.batch = batches.begin(), loop.last_batch = batches.end();
  return push_loop(L, std::move(loop), guarded<next_batch_of_job>);
}
int job_check(lua_State* L) {
  get<JobObject>(L, 1).get().check(luaL_checknumber(L, 2));
  return 0;
}
int job_attempt(lua_State* L) {
  luaL_checktype(L, 2, LUA_TFUNCTION);
  lua_settop(L, 2);
  get<JobObject>(L, 1).get().attempt([L] {
    lua_pushvalue(L, 2);
    if (lua_pcall(L, 0, 0, 0) == LUA_OK) return;
    const std::string text = luaL_tolstring(L, -1, nullptr);
    lua_settop(L, 2);
    throw Error(of(L).is_loss(text) ? ErrorKind::disconnected : ErrorKind::failed, text);
  });
  return 0;
}
int job_resumed(lua_State* L) {
  lua_pushboolean(L, get<JobObject>(L, 1).get().resumed());
  return 1;
}
int job_stopping(lua_State* L) {
  lua_pushboolean(L, get<JobObject>(L, 1).get().stopping());
  return 1;
}

}  // namespace

void open_jobs(lua_State* L) {
  open_weak(L, &kKeeps, "k");
  open_weak(L, &kTables, "v");
  make_type<KeepObject>(L, {});
  make_type<LoopObject>(L, {{"__close", guarded<close_loop>}});
  make_type<JobObject>(L, {{"steps", guarded<job_steps>},
                           {"batches", guarded<job_batches>},
                           {"attempt", guarded<job_attempt>},
                           {"check", guarded<job_check>},
                           {"resumed", guarded<job_resumed>},
                           {"stopping", guarded<job_stopping>}});
  lua_register(L, "job", guarded<make_job>);
  lua_register(L, "keep", guarded<keep>);
}

}  // namespace troupe::repl
