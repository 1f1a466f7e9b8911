// b(a(x)) in the shell: the result goes from a's worker to b's, and the script may still look at it.
#include <catch2/catch.hpp>

#include <string>

#include "tools/repl/lua/interpreter.h"

using namespace troupe;

namespace {

int64_t count(repl::Interpreter& interpreter, const char* what) {
  int64_t n = 0;
  for (const std::string& w : interpreter.cluster().workers()) n += interpreter.cluster().metrics(w)[what];
  return n;
}

// The first stage takes long enough that the shell can say where its result goes.
constexpr const char* kScene = R"lua(
  a = spawn("Module", "w1", nn.sequential{nn.linear(1024, 1024), nn.linear(1024, 64)})
  b = spawn("Module", "w2", nn.linear(64, 4))
  c = spawn("Module", "w1", nn.linear(64, 4))
  x = ops.randn({2048, 1024}):requires_grad_()
  function gradient(forward)
    local step <close> = context()
    step:backward(forward():square():mean())
    return step:grad(x)
  end
  function near(p, q) return (p - q):abs():max():item() <= 1e-6 * q:abs():max():item() end
)lua";

}  // namespace

TEST_CASE("in the shell a result goes straight to the call that takes it, and can be looked at afterwards") {
  repl::Interpreter interpreter(Cluster::in_process(3), {}, {});
  const auto run = [&](const char* text) { return interpreter.run(text, "=test", false).error; };
  REQUIRE(run(kScene) == "");
  CHECK(run(R"lua(
    local through_here = gradient(function() local h = a(x); h:get(); return b(h):get() end)
    local straight = gradient(function() return b(a(x)):get() end)
    assert(near(straight, through_here))
  )lua") == "");
  CHECK(count(interpreter, "arguments_sent") == 1);
  CHECK(run(R"lua(
    local h = a(x)
    local y = b(h)
    assert(near(y:get(), b(h:get()):get()))
    assert(h:get().shape[2] == 64 and h:ready())
    assert(near(c(h):get(), c(h:get()):get()))  -- as often as one likes
  )lua") == "");
  CHECK(count(interpreter, "arguments_sent") == 2);
  CHECK(run(R"lua(
    -- Another use of the copy: the gradients of both meet where the result was made.
    local want = gradient(function() local h = a(x); h:get(); return b(h):get() + c(h):get() end)
    local got = gradient(function() local h = a(x); local y = b(h); return y:get() + c(h):get() end)
    assert(near(got, want))
    local step <close> = context()
    local h = a(x)
    local y = b(h):get()
    local ok, why = pcall(function() return step:grad({y:sum()}, {h:get()}) end)
    assert(not ok)
    error(why)
  )lua")
            .find("is a copy of a result that went straight to another worker") != std::string::npos);
  CHECK(run("a, b, c = nil, nil, nil collectgarbage() collectgarbage()") == "");
}

TEST_CASE("in the shell the error of an argument is that of the call, and of the future") {
  repl::Interpreter interpreter(Cluster::in_process(3), {}, {});
  const auto run = [&](const char* text) { return interpreter.run(text, "=test", false).error; };
  REQUIRE(run(kScene) == "");
  CHECK(run(R"lua(
    local h = a(ops.randn({2048, 7}))
    local ok, why = pcall(function() return b(h):get() end)  -- the call's error, if h has failed by then
    local also, same = pcall(h.get, h)
    assert(not ok and not also)
    assert(tostring(why):find("Module::forward", 1, true), tostring(why))
    assert(tostring(same):find("Module::forward", 1, true), tostring(same))
    local k = a(x)
    local z = b(k)
    k:cancel()
    assert(not pcall(z.get, z))
  )lua") == "");
}
