#include "tools/repl/interpreter.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <regex>

#include "core/base/error.h"
#include "script/catalog.h"
#include "tools/repl/globals.h"
#include "tools/repl/objects.h"

namespace troupe::repl {
namespace {

constexpr size_t kMostMemory = size_t{2} << 30;  // of Lua alone: what its strings and tables may take
constexpr size_t kStep = 64 << 10;               // bytes of tensors after which the collector goes on
constexpr int kMostRunning = 200;                // LUAI_MAXCCALLS: coroutines that have resumed each other

// The state and the coroutines that have been resumed, for the signal handler.
lua_State* running[kMostRunning];
std::atomic<int> running_count{0};

// Ends whatever runs after an interrupt. It stays until the prompt is back, or pcall would swallow it.
void on_count(lua_State* L, lua_Debug*) {
  if (script::Session::interrupted()) luaL_error(L, "interrupted");
  lua_sethook(L, nullptr, 0, 0);
}

// Coroutines whose threads the signal handler knows.
constexpr const char* kPrelude = R"lua(
local push, pop, inherit = ...
local resume, create = coroutine.resume, coroutine.create
local function popped(...) pop() return ... end
function coroutine.resume(co, ...) push(co) return popped(resume(co, ...)) end
function coroutine.create(f) local co = create(f) inherit(co) return co end
local function checked(ok, ...) if not ok then error((...), 0) end return ... end
function coroutine.wrap(f)
  local co = coroutine.create(f)
  return function(...) return checked(coroutine.resume(co, ...)) end
end
)lua";

lua_State* thread_at(lua_State* L, int at) {
  lua_State* co = lua_tothread(L, at);
  if (!co) luaL_typeerror(L, at, "coroutine");
  return co;
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

// Suggests a name for a global that is nil: ops.randn for "randn".
std::string meant(const std::string& error) {
  static const std::regex nil("a nil value \\(global '(\\w+)'\\)$");
  std::smatch match;
  if (!std::regex_search(error, match, nil)) return "";
  const std::string name = match[1];
  std::string near;
  if (const auto found = script::find_everywhere(name); !found.empty()) {
    near = found.front().first;
  } else {
    std::vector<std::string> known;
    for (const Described& g : globals()) known.emplace_back(g.name);
    near = nearest(name, known);
  }
  return near.empty() ? "" : "; did you mean " + near + "?";
}

int with_traceback(lua_State* L) {
  if (!lua_isstring(L, 1)) {
    const std::string text = shown(L, 1);
    push(L, std::string_view(text));
    return 1;
  }
  return 1;
}

}  // namespace

int protect(lua_State* L, int (*f)(lua_State*)) {
  std::string text;
  try {
    return f(L);
  } catch (const Error& e) {
    text = e.what();
  } catch (const std::exception& e) {
    text = e.what();
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

void Interpreter::end(bool in_order) {
  running_count = 0;
  steps_.clear();
  if (L_) lua_close(std::exchange(L_, nullptr));
  session_.reset();
  if (const auto cluster = std::exchange(cluster_, nullptr)) {
    const bool lost = cluster->workers().size() < started_;
    cluster->shutdown({.graceful = in_order && !lost, .timeout = std::chrono::seconds(10)});
  }
}

void Interpreter::open_libraries() {
  luaL_openlibs(L_);
  // Only source text: prepared bytecode can do anything to the process.
  luaL_dostring(L_, R"lua(
    local load, loadfile = load, loadfile
    function _G.load(chunk, name, mode, ...) return load(chunk, name, "t", ...) end
    function _G.loadfile(name, mode, ...) return loadfile(name, "t", ...) end
    function _G.dofile(name) return assert(_G.loadfile(name))() end
    string.dump = nil
  )lua");
  lua_pushcfunction(L_, guarded<print>);
  lua_setglobal(L_, "print");
  luaL_loadstring(L_, kPrelude);
  lua_pushcfunction(
      L_, +[](lua_State* L) {
        of(L).push_running(thread_at(L, 1));
        return 0;
      });
  lua_pushcfunction(
      L_, +[](lua_State* L) {
        of(L).pop_running();
        return 0;
      });
  lua_pushcfunction(
      L_, +[](lua_State* L) {
        of(L).inherit(L, thread_at(L, 1));
        return 0;
      });
  lua_call(L_, 3, 0);
  open_tensors(L_);
  open_modules(L_);
  open_cluster(L_);
  open_training(L_);
  open_parallel(L_);
  open_drawing(L_);
  open_help(L_);
}

script::Session& Interpreter::session() {
  if (!session_)
    throw_invalid("[cluster] there is no cluster: the last one has ended; cluster(n) makes another one");
  return *session_;
}

void Interpreter::remake_cluster(int workers) {
  if (!make_cluster_) throw_invalid("[cluster] this interpreter makes no other cluster");
  if (workers == 0) workers = static_cast<int>(started_);
  if (workers < 1 || workers > 1024)
    throw_invalid("[cluster] a cluster has 1 to 1024 workers, got " + std::to_string(workers));
  steps_.clear();
  session_.reset();
  lua_gc(L_, LUA_GCCOLLECT);
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
  if (script::Session::interrupted()) lua_sethook(L, on_count, LUA_MASKCOUNT, 1);
}
void Interpreter::pop_running() { --running_count; }

void Interpreter::interrupt(int) noexcept {
  script::Session::interrupt();
  const int n = std::min(running_count.load(), kMostRunning);
  for (int i = 0; i < n; ++i)
    lua_sethook(running[i], on_count, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1);
}

void Interpreter::charge(size_t bytes) {
  charged_ += bytes;
  if (charged_ < kStep) return;
  lua_gc(L_, LUA_GCSTEP, static_cast<int>(std::min<size_t>(charged_ >> 10, 1 << 30)));
  charged_ = 0;
}

bool Interpreter::incomplete(const std::string& text) {
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

Outcome Interpreter::outcome_of(int status) {
  Outcome out;
  if (status == LUA_OK) return out;
  out.ok = false;
  out.interrupted = script::Session::interrupted();
  out.error = lua_type(L_, -1) == LUA_TSTRING ? std::string(text_at(L_, -1)) : shown(L_, -1);
  out.error += meant(out.error);
  lua_settop(L_, 0);
  return out;
}

Outcome Interpreter::run(const std::string& text, const std::string& name, bool at_prompt) {
  lua_settop(L_, 0);
  lua_pushcfunction(L_, with_traceback);
  const std::string chunk = text.starts_with("#") ? "--" + text : text;  // #!/usr/bin/env
  int status = LUA_ERRSYNTAX;
  if (at_prompt) {
    const std::string expression = "return " + chunk;
    status = luaL_loadbufferx(L_, expression.data(), expression.size(), name.c_str(), "t");
    if (status != LUA_OK) lua_pop(L_, 1);
  }
  if (status != LUA_OK) status = luaL_loadbufferx(L_, chunk.data(), chunk.size(), name.c_str(), "t");
  if (status != LUA_OK) {
    const bool more = status == LUA_ERRSYNTAX && text_at(L_, -1).ends_with("<eof>");
    Outcome out = outcome_of(status);
    out.incomplete = more;
    return out;
  }
  Outcome out = outcome_of(lua_pcall(L_, 0, LUA_MULTRET, 1));
  if (out.ok && at_prompt) {
    // What it gave: futures are waited for, and the last value stays as _.
    const int n = lua_gettop(L_);
    lua_pushcfunction(L_, guarded<+[](lua_State* L) {
                        const int last = lua_gettop(L);
                        for (int i = 1; i <= last; ++i)
                          if (auto* f = get_if<FutureObject>(L, i); f && !f->stays) {
                            push(L, f->get(L));
                            lua_replace(L, i);
                          }
                        std::string line;
                        for (int i = 1; i <= last; ++i) line += (i > 1 ? "\t" : "") + shown(L, i);
                        if (last == 1 && lua_isnil(L, 1)) line.clear();
                        if (!line.empty()) {
                          line += "\n";
                          std::fwrite(line.data(), 1, line.size(), stdout);
                        }
                        if (last > 0 && !lua_isnil(L, 1)) {
                          lua_pushvalue(L, 1);
                          lua_setglobal(L, "_");
                        }
                        return 0;
                      }>);
    lua_insert(L_, 2);
    out = outcome_of(lua_pcall(L_, n - 1, 0, 1));
  }
  lua_settop(L_, 0);
  return out;
}

}  // namespace troupe::repl
