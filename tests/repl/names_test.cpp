// What help and the reference say there is, is there, and nothing else.
#include <sys/resource.h>
#include <catch2/catch.hpp>

#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "script/catalog.h"
#include "tests/support/places.h"
#include "tools/repl/api/reference.h"
#include "tools/repl/lua/globals.h"
#include "tools/repl/lua/interpreter.h"
#include "tools/repl/lua/objects.h"
#include "tools/repl/terminal/prompt.h"
#include "troupe/watch/questions.h"

using namespace troupe;

namespace {

std::set<std::string> own_names(lua_State* L, int at) {
  std::set<std::string> out;
  for (lua_pushnil(L); lua_next(L, at); lua_pop(L, 1))
    if (lua_type(L, -2) == LUA_TSTRING) out.emplace(repl::text_at(L, -2));
  return out;
}

}  // namespace

TEST_CASE("functions of the shell are described, and those that are described exist") {
  repl::Interpreter interpreter(Cluster::in_process(1), {}, {});
  lua_State* L = interpreter.state();
  lua_State* plain = luaL_newstate();
  luaL_openlibs(plain);
  lua_pushglobaltable(plain);
  const std::set<std::string> of_lua = own_names(plain, 1);
  lua_close(plain);
  std::set<std::string> described{"ops", "nn", "optim", "data", "llm", "arg"};
  for (const auto& g : repl::globals()) described.insert(g.name);
  lua_settop(L, 0);
  lua_pushglobaltable(L);
  for (const std::string& name : own_names(L, 1))
    if (!of_lua.contains(name) || name == "print") {
      INFO(name);
      CHECK(described.contains(name));
    }
  for (const std::string& name : described) {
    INFO(name);
    CHECK(interpreter.run("assert(" + name + " ~= nil)", "=test", false).error == "");
  }
}

TEST_CASE("methods of the shell's objects are described, and those that are described exist") {
  repl::Interpreter interpreter(Cluster::in_process(1), {}, {});
  lua_State* L = interpreter.state();
  std::set<std::string> described, there;
  for (const auto& m : repl::object_methods()) described.insert(m.name);
  for (const char* type :
       {"tensor",  "future",       "reference", "context",      "module",  "optimizer", "scheduler",
        "dataset", "job",          "pipeline",  "pipelines",    "served",  "client",    "group",
        "mesh",    "replicas",     "split",     "accumulation", "summary", "decoder",   "tokenizer",
        "tokens",  "served_model", "source",    "feed"}) {
    lua_settop(L, 0);
    repl::push_methods(L, type);
    REQUIRE(lua_istable(L, 1));
    for (const std::string& name : own_names(L, 1)) there.insert(std::string(type) + ":" + name);
  }
  CHECK(described == there);
}

TEST_CASE("every entry of the catalogue can be called, completed and asked about") {
  repl::Interpreter interpreter(Cluster::in_process(1), {}, {});
  for (const auto& section : script::catalog())
    for (const Entry& entry : section.entries) {
      INFO(section.prefix + "." + entry.name);
      CHECK_FALSE(entry.text.empty());
      const std::string lua_name = entry.name == "repeat" ? "repeat_" : entry.name;
      CHECK(interpreter
                .run("assert(type(" + section.prefix + "." + lua_name + ") == 'function')", "=test", false)
                .error == "");
      const auto offered = interpreter.completions("x = " + section.prefix + "." + entry.name);
      CHECK(std::count(offered.begin(), offered.end(), section.prefix + "." + entry.name) == 1);
    }
}

TEST_CASE("the reference is what the tables say") {
  std::ifstream file(testing::kSourceFolder + std::string("/docs/reference/shell.md"));
  const std::string kept{std::istreambuf_iterator<char>(file), {}};
  INFO("troupe repl --reference > docs/reference/shell.md writes it anew");
  CHECK(kept == repl::reference_text());
}

TEST_CASE("100 tensors of 100 MB are collected as a loop goes on") {
  repl::Interpreter interpreter(Cluster::in_process(1), {}, {});
  const auto outcome =
      interpreter.run("for i = 1, 100 do local x = ops.zeros({25000000}) end", "=test", false);
  CHECK(outcome.error == "");
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  CHECK(usage.ru_maxrss < 1'000'000);  // kB, whatever other tests of this program held before
}

TEST_CASE("what an actor is doing can be asked while it is stuck") {
  repl::Interpreter interpreter(Cluster::in_process(2), {}, {});
  const auto outcome = interpreter.run(R"(
    served = serve({tensor{1.0}}, {on = "w1", trainers = 2})
    client = served:client("first")
    a = spawn("Module", "w1", nn.sequential{nn.linear(1024, 1024), nn.linear(1024, 1024), nn.linear(1024, 1024)})
    local x = ops.randn({4096, 1024})
    local calls = {}
    for i = 1, 4 do calls[i] = a(x):async() end
    local before = os.clock()
    assert(inspect(a).type == "Module")
    ps()
    waits()
    all(calls)
  )",
                                       "=test", false);
  CHECK(outcome.error == "");
}

TEST_CASE("waits and reports say at once what a pull waits for") {
  repl::Interpreter interpreter(Cluster::in_process(2), {}, {});
  CHECK(interpreter
            .run(R"lua(
    served = serve({tensor{1.0}}, {on = "w1", trainers = 2, policy = "ssp(2)"
})
    client = served:client("first")
    pull = client:pull():async()
  )lua",
                 "=test", false)
            .error == "");
  internal::actors::Worker& w0 = interpreter.cluster().worker();
  internal::watch::Questions questions(w0, "");
  std::vector<internal::watch::Wait> waits;
  do waits = questions.waits();
  while (waits.size() != 1 || !waits[0].what.ends_with("on w1 waits for trainers to join: 1 of 2 have"));
  CHECK(waits[0].waiting == 1);
  REQUIRE(waits[0].way.size() == 1);
  CHECK(waits[0].way[0].starts_with("w0 waits for "));
  CHECK(waits[0].way[0].ends_with("Server::pull on w1"));
  const std::string report =
      "ssp(2), version 0: trainers first; step 0 is open, first is missing; no gradients yet; late 0, "
      "aborted 0, "
      "lost 0";
  CHECK(
      interpreter
          .run("waits() ps(served) ps({served}) local s = inspect(served) assert(#s == 1 and s[1].worker == "
               "'w1')"
               "assert(s[1].state == '" +
                   report +
                   "', s[1].state) assert(tostring(served:report()) == s[1].state)"
                   "assert(tostring(served:report()[1]) == s[1].state and served:report()[1].late == 0)",
               "=test", false)
          .error == "");
  parallel::ServerReport told;
  told.policy = "async";
  told.version = 7;
  told.trainers = {"a", "b"};
  told.delays = {{0, 4}, {2, 3}};
  told.lost = 1;
  CHECK(told.str() ==
        "async, version 7: trainers a, b; gradients by delay 0: 4, 2: 3; late 0, aborted 0, lost 1");
}

TEST_CASE("metatables of objects are closed, and what is freed is freed once") {
  repl::Interpreter interpreter(Cluster::in_process(1), {}, {});
  CHECK(interpreter
            .run(R"lua(
    local m = nn.linear(2, 2)
    local served = serve({tensor{1.0}}, {on = "w0"})
    local opt = optim.sgd(m, {lr = 1})
    local data_of = data.of(ops.ones({4, 2}), ops.ones({4}))
    local step = context()
    local objects = {
      tensor = tensor{1.0}, reference = spawn("Module", "w0", m), context = step, module = m,
      future = spawn("Module", "w0", m)(ops.ones({1, 2})), served = served, client = served:client("a"),
      optimizer = opt, schedule = optim.exponential(0.5), scheduler = optim.scheduler(opt, optim.exponential(0.5)),
      dataset = data_of, batches = select(2, data_of:batches()), pipeline = pipeline({spawn("Module", "w0", m)}, {}),
      pipelines = pipelines(mesh{{"pp", 1}}, {m}), group = group(), mesh = mesh({{"dp", 1}}),
    }
    for name, object in pairs(objects) do
      assert(getmetatable(object) == name, name)
      assert(not pcall(setmetatable, {}, getmetatable(object)))
      assert(not pcall(setmetatable, object, {}))
      for _, field in ipairs{"__gc", "__index", "__name", "__metatable", "methods"} do
        local there, got = pcall(function() return object[field] end)
        assert(not there or got == nil, name .. "." .. field)
      end
    end
    for _, name in ipairs{"ops", "nn", "optim", "data"} do
      assert(getmetatable(_G[name]) == name and not pcall(setmetatable, _G[name], {}))
    end
    local open = {}
    for name in pairs(debug) do open[#open + 1] = name end
    table.sort(open)
    assert(table.concat(open, " ") == "getinfo traceback", table.concat(open, " "))
    step:close()
  )lua",
                 "=test", false)
            .error == "");
}

TEST_CASE("values of errors, deep calls and long texts end in an error, or well") {
  repl::Interpreter interpreter(Cluster::in_process(1), {}, {});
  const std::string long_name(1 << 20, 'a');
  for (const auto& [text, error] : std::vector<std::pair<std::string, std::string>>{
           {"error()", "nil"},
           {"error({code = 2})", "{code = 2}"},
           {"error(tensor{1.0})", "tensor([1.])"},
           {"error(setmetatable({}, {__tostring = function() error('x') end}))", "x"},
           {"error(setmetatable({}, {__tostring = function() return {} end}))", "must return a string"},
           {"local function f() return 1 + f() end f()", "stack overflow"},
           {"local function f(...) return no_grad(f, ...) end f()", "overflow"},
           {"string.rep('x', 1 << 40)", "resulting string too large"},
           {long_name + "()", "attempt to call a nil value"},
           {"local " + long_name + " = 1", ""},
           {"return " + std::string(100000, '('), ""},
           {"return {" + std::string(1 << 20, '1') + "}", ""},
           {"coroutine.wrap(function() error({1}) end)()", "{1}"},
           {"local co = coroutine.wrap(function() local c <close> = context() error('x') end) co()", "x"},
       }) {
    INFO(text.substr(0, 200));
    const auto outcome = interpreter.run(repl::at_prompt(text), "=test", true);
    CHECK(outcome.error.find(error) != std::string::npos);
    CHECK(interpreter.run("assert(1 + 1 == 2) collectgarbage()", "=test", false).error == "");
  }
}

TEST_CASE("locals of a line stay at the prompt") {
  const std::pair<const char*, const char*> lines[] = {
      {"local a = 1", "a = 1"},
      {"local a, b = f()", "a, b = f()"},
      {"local step <close> = context()", "step = context()"},
      {"local function f(x) return x end", "function f(x) return x end"},
      {"local x", "x = nil "},
      {"local x; local y = 2 local z", "x = nil ; y = 2 z = nil "},
      {"  local a <const>,b <close>=1, f()\n", "  a, b =1, f()\n"},
      {"if a then local b = 1 end local c = 2", "if a then local b = 1 end c = 2"},
      {"local f = function() local x = 1 return x end local y = f()",
       "f = function() local x = 1 return x end y = f()"},
      {"local s = 'local t = 1 end' -- local u = 1\nlocal v = [[ local w ]]",
       "s = 'local t = 1 end' -- local u = 1\nv = [[ local w ]]"},
      {"local functional = 1", "functional = 1"},
      {"for i = 1, 2 do local x = i end", "for i = 1, 2 do local x = i end"},
      {"repeat local x = 1 until x", "repeat local x = 1 until x"},
      {"do local x = 1 end", "do local x = 1 end"},
      {"a == 1", "a == 1"},
      {"localize = 1", "localize = 1"},
      {"local", "local"},
      {"local 5 = 1", "local 5 = 1"},
  };
  for (const auto& [typed, run] : lines) CHECK(repl::at_prompt(typed) == run);
}
