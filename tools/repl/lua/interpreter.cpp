#include "tools/repl/lua/interpreter.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "core/base/error.h"
#include "script/show.h"
#include "tools/repl/lua/hints.h"
#include "tools/repl/lua/objects.h"
#include "troupe/cluster/exit_code.h"
#include "troupe/cluster/launch.h"

namespace troupe::repl {
namespace {

constexpr size_t kMostMemory = size_t{2} << 30;  // of Lua alone: what its strings and tables may take
constexpr size_t kStep = 64 << 10;               // bytes of tensors after which the collector goes on
constexpr int kMostRunning = 200;                // LUAI_MAXCCALLS: coroutines that have resumed each other

// The state and the coroutines that have been resumed, for the signal handler.
lua_State* running[kMostRunning];
std::atomic<int> running_count{0};

// Ends whatever runs after an interrupt, or os.exit(). It stays until the prompt is back, or pcall would
// swallow it.
void on_count(lua_State* L, lua_Debug*) {
  if (of(L).exit_code()) luaL_error(L, "the script has called os.exit()");
  if (script::Session::interrupted()) luaL_error(L, "interrupted");
  lua_sethook(L, nullptr, 0, 0);
}
void set_hooks() {
  const int n = std::min(running_count.load(), kMostRunning);
  for (int i = 0; i < n; ++i)
    lua_sethook(running[i], on_count, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1);
}

int print(lua_State* L) {
  std::string line;
  for (int i = 1; i <= lua_gettop(L); ++i) {
    if (i > 1) line += "\t";
    if (auto* f = get_if<FutureObject>(L, i); f && !f->stays) {
      push(L, f->get(L));
      lua_replace(L, i);
    }
    line += lua_type(L, i) == LUA_TSTRING ? std::string(text_at(L, i)) : shown(L, i);
  }
  line += "\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
  return 0;
}

// The value of an error that is no text, as text.
int error_text(lua_State* L) {
  if (!lua_isstring(L, 1)) push(L, std::string_view(shown(L, 1)));
  return 1;
}

// What a line at the prompt gave: futures are waited for, and the first value stays as _.
int print_results(lua_State* L) {
  const int last = lua_gettop(L);
  bool some = false;
  for (int i = 1; i <= last; ++i) {
    auto* f = get_if<FutureObject>(L, i);
    const bool gives = !f || f->stays || f->gives;
    if (f && !f->stays) {
      push(L, f->get(L));
      lua_replace(L, i);
    }
    some |= gives || !lua_isnil(L, i);
  }
  if (!some) return 0;
  std::string line = last == 1 ? about_function(L, 1) : std::string();
  if (line.empty()) {
    for (int i = 1; i <= last; ++i) line += (i > 1 ? "\t" : "") + shown(L, i);
    if (last == 1 && lua_isnil(L, 1)) line += hint_for_nil(std::string(text_at(L, lua_upvalueindex(1))));
    line += "\n";
  }
  std::fwrite(line.data(), 1, line.size(), stdout);
  if (!lua_isnil(L, 1)) {
    lua_pushvalue(L, 1);
    lua_setglobal(L, "_");
  }
  return 0;
}

int os_exit(lua_State* L) {
  const bool by_word = lua_isnoneornil(L, 1) || lua_isboolean(L, 1);
  const auto code = by_word ? (lua_isboolean(L, 1) && !lua_toboolean(L, 1)) : luaL_checkinteger(L, 1);
  of(L).exit(static_cast<int>(code & 0xff));
  return luaL_error(L, "the script has called os.exit()");
}

// warn(), and what Lua warns of: errors of finalizers, which nobody catches.
void warn(void* data, const char* message, int more) {
  std::string& text = *static_cast<std::string*>(data);
  text += message;
  if (more) return;
  const std::string whole = std::exchange(text, {});
  if (whole.starts_with("@")) return;  // control messages
  std::fflush(stdout);
  std::fprintf(stderr, "warning: %s\n", script::harmless(whole, 1 << 14).c_str());
}

}  // namespace

int protect(lua_State* L, int (*f)(lua_State*)) {
  std::string text;
  try {
    const Interpreter::Inside inside(of(L));
    return f(L);
  } catch (const std::bad_alloc&) {
    text = current_error().what();
  } catch (const std::exception& e) {
    text = e.what();
    of(L).note_error(text, internal::exit_code_of_exception());
  }
  luaL_where(L, 1);
  push(L, std::string_view(text));
  lua_concat(L, 2);
  return lua_error(L);
}

Interpreter& of(lua_State* L) { return **static_cast<Interpreter**>(lua_getextraspace(L)); }

void* Interpreter::allocate(void* self, void* at, size_t old_size, size_t new_size) {
  auto& interpreter = *static_cast<Interpreter*>(self);
  if (!at) old_size = 0;  // then it says what kind of object it is
  if (new_size == 0) {
    std::free(at);
    interpreter.used_ -= old_size;
    return nullptr;
  }
  if (new_size > old_size && interpreter.used_ + (new_size - old_size) > kMostMemory) return nullptr;
  void* moved = std::realloc(at, new_size);
  if (moved) interpreter.used_ += new_size - old_size;
  return moved;
}

Interpreter::Interpreter(std::unique_ptr<Cluster> cluster, MakeCluster make_cluster,
                         std::vector<std::string> arguments)
    : cluster_(std::move(cluster)), make_cluster_(std::move(make_cluster)) {
  session_ = std::make_unique<script::Session>(*cluster_);
  started_ = cluster_->workers().size();
  L_ = lua_newstate(allocate, this);
  if (!L_) throw_error(ErrorKind::failed, "[repl] no memory for Lua");
  lua_setwarnf(L_, warn, &warning_);
  *static_cast<Interpreter**>(lua_getextraspace(L_)) = this;
  running[0] = L_;
  running_count = 1;
  open_libraries();
  lua_createtable(L_, static_cast<int>(arguments.size()), 0);
  for (size_t i = 0; i < arguments.size(); ++i) {
    push(L_, std::string_view(arguments[i]));
    lua_rawseti(L_, -2, static_cast<lua_Integer>(i));  // arg[0] is the script, as in lua
  }
  lua_setglobal(L_, "arg");
}

Interpreter::~Interpreter() {
  try {
    end(false);
  } catch (const Error&) {  // end() is for who wants to hear of it
  }
}

// Finalizers still have all that scripts have: the state is there until it is closed.
void Interpreter::close_state() {
  if (!L_) return;
  lua_settop(L_, 0);
  running_count = 1;
  lua_close(L_);
  L_ = nullptr;
  running_count = 0;
}

void Interpreter::exit(int code) {
  if (!exit_code_) exit_code_ = code;
  set_hooks();
}

void Interpreter::end(bool in_order) {
  steps_.clear();
  close_state();
  steps_.clear();
  session_.reset();
  if (const auto cluster = std::exchange(cluster_, nullptr)) {
    const bool lost = cluster->workers().size() < started_;
    cluster->shutdown({.graceful = in_order && !lost, .timeout = std::chrono::seconds(10)});
  }
}

void Interpreter::open_libraries() {
  luaL_openlibs(L_);
  // Only source text: prepared bytecode can do anything to the process. So can most of debug.
  luaL_dostring(L_, R"lua(
    local load, loadfile = load, loadfile
    local files = {safetensors = "load_tensors", pt = "load_tensors", pth = "load_tensors",
                   ckpt = "load_tensors", bin = "load_tensors", lua = "dofile"}
    function _G.load(chunk, name, mode, ...)
      local f, why = load(chunk, name, "t", ...)
      if f then return f end
      local reads = type(chunk) == "string" and files[chunk:match("^[^\n\"]+%.(%w+)$")]
      if reads then error(("load(text) compiles Lua; %s(%q) reads a file"):format(reads, chunk), 2) end
      return nil, why
    end
    function _G.loadfile(name, mode, ...) return loadfile(name, "t", ...) end
    function _G.dofile(name) return assert(_G.loadfile(name))() end
    string.dump = nil
    for name in pairs(debug) do
      if name ~= "traceback" and name ~= "getinfo" then debug[name] = nil end
    end
    -- Names that would be nil, without a word, where false is meant.
    local python = {True = "true", False = "false", None = "nil"}
    setmetatable(_G, {__index = function(_, name)
      if python[name] then error(("Python's %s is %s in Lua"):format(name, python[name]), 2) end
    end})
  )lua");
  lua_register(L_, "print", guarded<print>);
  lua_getglobal(L_, "os");
  lua_pushcfunction(L_, os_exit);
  lua_setfield(L_, -2, "exit");
  lua_pop(L_, 1);
  open_coroutines(L_);
  open_tensors(L_);
  open_modules(L_);
  open_futures(L_);
  open_cluster(L_);
  open_training(L_);
  open_feeds(L_);
  open_jobs(L_);
  open_parallel(L_);
  open_groups(L_);
  open_replicas(L_);
  open_summaries(L_);
  open_claims(L_);
  open_language_models(L_);
  open_drawing(L_);
  open_help(L_);
}

script::Session& Interpreter::session() {
  if (!session_)
    throw_invalid("[cluster] there is no cluster: the last one has ended; cluster(n) makes another one");
  return *session_;
}

void Interpreter::remake_cluster(lua_State* L, int workers) {
  if (depth_ > 1)
    throw_invalid(
        "[cluster] cluster() ends the cluster that a function around it still works with, like trace(f) or "
        "time(f): call it outside of that");
  if (!make_cluster_) throw_invalid("[cluster] this interpreter makes no other cluster");
  if (workers == 0) workers = static_cast<int>(started_);
  if (workers < 1 || workers > 1024)
    throw_invalid("[cluster] a cluster has 1 to 1024 workers, got " + std::to_string(workers));
  steps_.clear();
  for (const auto& f : std::exchange(at_end_of_cluster_, {})) f();
  session_.reset();
  lua_gc(L, LUA_GCCOLLECT);
  try {
    if (cluster_) cluster_->shutdown({.graceful = false});
  } catch (const Error&) {  // it is why another one is wanted
  }
  cluster_.reset();
  cluster_ = make_cluster_(workers);
  started_ = cluster_->workers().size();
  session_ = std::make_unique<script::Session>(*cluster_);
}

std::shared_ptr<script::Step> Interpreter::step_of(lua_State* L) {
  const auto it = steps_.find(L);
  if (it == steps_.end()) return nullptr;
  auto& steps = it->second;
  while (!steps.empty() && !steps.back()->open()) steps.pop_back();
  return steps.empty() ? nullptr : steps.back();
}

void Interpreter::push_running(lua_State* L) {
  const int n = running_count.load();
  if (n < kMostRunning) running[n] = L;
  running_count = n + 1;
  if (script::Session::interrupted() || exit_code_) set_hooks();
}
void Interpreter::pop_running() { --running_count; }

void Interpreter::interrupt(int) noexcept {
  static volatile sig_atomic_t again = 0;
  constexpr std::string_view kOnce =
      "\nWhat runs now cannot be interrupted before its end; a third Ctrl-C ends the shell.\n";
  again = script::Session::interrupted() ? again + 1 : 0;
  if (again >= 2) _exit(130);
  if (again == 1) {
    const int before = errno;
    const ssize_t ignored = ::write(STDERR_FILENO, kOnce.data(), kOnce.size());
    (void)ignored;
    errno = before;
  }
  script::Session::interrupt();
  set_hooks();
}

void Interpreter::charge(lua_State* L, size_t bytes) {
  charged_ += bytes;
  if (charged_ < kStep) return;
  lua_gc(L, LUA_GCSTEP, static_cast<int>(std::min<size_t>(charged_ >> 10, 1 << 30)));
  charged_ = 0;
}

bool Interpreter::incomplete(const std::string& text) {
  if (opens_python_block(text)) return false;
  bool more = false;
  for (const std::string& form : {"return " + text, text}) {
    const int status = luaL_loadbufferx(L_, form.data(), form.size(), "=prompt", "t");
    const bool goes_on = status == LUA_ERRSYNTAX && text_at(L_, -1).ends_with("<eof>");
    lua_pop(L_, 1);
    if (status == LUA_OK) return false;
    more |= goes_on;
  }
  return more;
}

ChunkOutcome Interpreter::outcome_of(int status, const std::string& text) {
  ChunkOutcome out;
  if (status == LUA_OK) return out;
  out.ok = false;
  out.interrupted = script::Session::interrupted();
  out.error = lua_type(L_, -1) == LUA_TSTRING ? std::string(text_at(L_, -1)) : luaL_typename(L_, -1);
  const auto& [last, code] = last_error_;
  out.code = !last.empty() && out.error.find(last) != std::string::npos ? code : kExitFailed;
  out.error += hint(out.error, text);
  lua_settop(L_, 0);
  return out;
}

ChunkOutcome Interpreter::run(const std::string& text, const std::string& name, bool at_prompt) {
  lua_settop(L_, 0);
  running_count = 1;  // coroutines that an interrupt has ended are gone
  lua_pushcfunction(L_, guarded<error_text>);
  int status = LUA_ERRSYNTAX;
  if (at_prompt) {
    const std::string expression = "return " + text;
    status = luaL_loadbufferx(L_, expression.data(), expression.size(), name.c_str(), "t");
    if (status != LUA_OK) lua_pop(L_, 1);
  }
  if (status != LUA_OK) status = luaL_loadbufferx(L_, text.data(), text.size(), name.c_str(), "t");
  if (status != LUA_OK) {
    const bool more = status == LUA_ERRSYNTAX && text_at(L_, -1).ends_with("<eof>");
    ChunkOutcome out = outcome_of(status, text);
    out.incomplete = more;
    return out;
  }
  ChunkOutcome out = outcome_of(lua_pcall(L_, 0, LUA_MULTRET, 1), text);
  if (out.ok && at_prompt) {
    const int n = lua_gettop(L_);
    lua_pushstring(L_, text.size() < 100 ? text.c_str() : "");
    lua_pushcclosure(L_, guarded<print_results>, 1);
    lua_insert(L_, 2);
    out = outcome_of(lua_pcall(L_, n - 1, 0, 1), text);
  }
  lua_settop(L_, 0);
  return out;
}

}  // namespace troupe::repl
