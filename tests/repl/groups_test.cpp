// Groups, meshes and groups of options in the shell.
#include <catch2/catch.hpp>

#include <string>

#include "tools/repl/lua/interpreter.h"
#include "troupe/groups.h"

using namespace troupe;

namespace {

struct Adder : Actor {
  Task<Tensor> add(Group group, Tensor x) {
    const auto sum = group.all_reduce(x);
    co_return co_await sum;
  }
  Task<Tensor> rows(Group group, Tensor x) {
    const auto all = group.all_gather(x);
    co_return co_await all;
  }
  Task<Tensor> along(Mesh mesh, std::string dim, Tensor x) {
    const auto sum = mesh[dim].all_reduce(x);
    co_return co_await sum;
  }
  Task<Tensor> echo(Group group, Tensor x) {
    const auto sent = group.send(x, 0, "there");
    co_await sent;
    const auto back = group.receive(0, "back");
    co_return co_await back;
  }
  Task<void> meet(Group group) { co_await group.barrier(); }
  static constexpr auto remote =
      methods<constructor<>, &Adder::add, &Adder::rows, &Adder::along, &Adder::echo, &Adder::meet>;
};

// Runs scripts in a shell of three workers; the error, or nothing.
struct Shell {
  repl::Interpreter interpreter{Cluster::in_process(3, hosting<Adder>()), {}, {}};
  std::string run(const std::string& text) { return interpreter.run(text, "=test", false).error; }
};

}  // namespace

TEST_CASE("in the shell a script does its worker's part of a group's operations") {
  Shell shell;
  CHECK(shell.run(R"lua(
    local a, b = spawn("Adder", "w1"), spawn("Adder", "w2")
    local g = group{"w0", "w1", "w2"}
    assert(#g == 3 and g:size() == 3 and g:rank() == 0 and g:label(2) == "w2" and g:hosts() == 1)
    assert(g == group() and g ~= group({"w0", "w1", "w2"}, "other"))
    assert(tostring(group({0, 1}, "two")) == 'group "two" of 2: w0, w1', tostring(group({0, 1}, "two")))
    local x = tensor{1.0, 2.0}

    local fa, fb = a:add(g, x * 10), b:add(g, x * 100)
    local mine = g:all_reduce(x):get()
    for _, sum in ipairs{mine, fa:get(), fb:get()} do assert(sum:eq(tensor{111.0, 222.0}):all():item()) end

    fa, fb = a:rows(g, tensor{{3.0}}), b:rows(g, tensor{{4.0}, {5.0}})
    local rows = g:all_gather(tensor{{1.0}, {2.0}})
    assert(rows:get():eq(ops.arange(1, 6):reshape{5, 1}):all():item())
    assert(#rows:get().shape == 2 and all{fa, fb}[2].shape[1] == 5)

    local two = g:subset({0, 2}, "ends")
    local echo = b:echo(two, x)
    two:send(two:receive(1, "there"):get() + 1, 1, "back"):get()
    assert(echo:get():eq(tensor{2.0, 3.0}):all():item())

    local met = {a:meet(g), b:meet(g)}
    assert(g:barrier():get() == nil)
    all(met)
    assert(g:survivors() == g)
    assert(g:ways(1000):find("all_reduce by", 1, true))
  )lua") == "");
}

TEST_CASE("in the shell every operation of a group of one gives what it was given") {
  Shell shell;
  CHECK(shell.run(R"lua(
    local g, x = group({"w0"}, "alone"), tensor{{1.0, 2.0}, {3.0, 4.0}}
    local function same(f) assert(f:get():eq(x):all():item()) end
    assert(g:tune():get() == "no links")
    same(g:all_reduce(x)) same(g:all_reduce(x, {op = "mean", tag = "t", timeout = 5}))
    same(g:reduce(x, 0, {op = "max"})) same(g:reduce_scatter(x, {rows = {2}})) same(g:broadcast(x, 0))
    same(g:scatter(x, 0)) same(g:gather(x, 0)) same(g:all_gather(x))
    local list = g:all_reduce({x, x * 2}):get()
    assert(#list == 2 and list[2]:eq(x * 2):all():item())
    assert(g:broadcast({x, x}, 0):get()[2]:eq(x):all():item() and g:all_to_all{x}:get()[1]:eq(x):all():item())
  )lua") == "");
}

TEST_CASE("in the shell a mesh has groups along its dimensions, and goes to actors") {
  Shell shell;
  CHECK(shell.run(R"lua(
    local actors = {}
    for i = 0, 5 do actors[i + 1] = spawn("Adder", i % 3) end
    local m = mesh({{"dp", 2}, {"pp", 3}}, actors)
    assert(#m == 6 and m:size() == 6 and m:size("pp") == 3 and m:all():size() == 6)
    assert(tostring(m) == "mesh dp 2 x pp 3 of 6", tostring(m))
    local rows = m:groups("pp")
    assert(#rows == 2 and rows[2]:size() == 3 and rows[2]:label(0):find("on w0", 1, true))
    local sums = {}
    for i, a in ipairs(actors) do sums[i] = a:along(m, "dp", tensor{i * 1.0}) end
    for i, sum in ipairs(all(sums)) do assert(sum:item() == i + (i <= 3 and i + 3 or i - 3), i) end

    local of_workers = mesh({{"pp", 3}})
    assert(of_workers:coordinate("pp") == 0 and of_workers:group("pp"):size() == 3)
  )lua") == "");
}

TEST_CASE("in the shell gradients go through operations of a group") {
  Shell shell;
  CHECK(shell.run(R"lua(
    local a, g = spawn("Adder", "w1"), group{"w0", "w1"}
    local x, y = tensor{1.0, 2.0}:requires_grad_(), tensor{3.0, 4.0}:requires_grad_()
    local step <close> = context()
    local theirs = a:add(g, y)
    local sum = g:all_reduce(x):get()
    step:backward(((sum * sum):sum() + theirs:get():sum()))
    assert(step:grad(x):eq(tensor{9.0, 13.0}):all():item(), tostring(step:grad(x)))
    assert(step:grad(y):eq(tensor{9.0, 13.0}):all():item(), tostring(step:grad(y)))
    theirs = a:add(g, y:detach())
    assert(not g:all_reduce(x, {gradients = false}):get().requires_grad)
    theirs:get()
  )lua") == "");
}

TEST_CASE("in the shell groups and meshes that cannot be say why") {
  Shell shell;
  for (const auto& [text, error] : std::vector<std::pair<std::string, std::string>>{
           {"group('w1')", "the members are a list of references, or of workers; got string"},
           {"group{true}", "a member is a reference, or a worker: \"w1\" or 1; got bool"},
           {"group{'w0', spawn('Adder', 'w1')}", "the members are actors or workers, not both"},
           {"group{'w7'}", "w7"},
           {"group{'w1', 'w2'}:rank()", "worker w0 is no member. The members are: w1, w2"},
           {"group():label(3)", "rank 3 of a group of 3: ranks count from 0"},
           {"group():all_reduce(tensor{1.0}, {op = 'most'})",
            "op must be one of sum, mean, min, max; got \"most\""},
           {"group():all_reduce(tensor{1.0}, {operation = 'sum'})",
            "an operation has the options op, tag, timeout, way, rows and gradients, not operation"},
           {"group():barrier{timeout = -1}", "a timeout of -1 s; expected 0 (none) or more"},
           {"group():ways(-1)", "-1 bytes"},
           {"mesh{{'dp', 2}}", "are not the 3 members"},
           {"mesh{{'dp', 0}}", "dimension dp has size 0: give 1 at least"},
           {"mesh({{'dp', 3}}):groups('tp')", "there is no dimension tp. There are: dp 3"},
           {"group{'w0', 'w1'}:barrier({timeout = 0.05}):get()", "w1"},
       }) {
    INFO(text);
    const std::string got = shell.run(text);
    INFO(got);
    CHECK(got.find(error) != std::string::npos);
  }
}

TEST_CASE("in the shell optimizers of actors have groups of options, and one norm") {
  Shell shell;
  CHECK(shell.run(R"lua(
    local a = spawn("Module", "w1", nn.linear(3, 4))
    local b = spawn("Module", "w2", nn.linear(4, 2))
    local opt = optim.sgd({a, b}, {lr = 0.5, groups = {{params = {"*bias"}, lr = 0}}})
    local names = opt:groups()
    assert(#names == 2 and #names[1] == 2 and names[2][1]:find("^bias of Module#0:%d+ on w1$"), names[2][1])
    assert(opt:options().lr == 0.5 and opt:options({}, 1).lr == 0)
    local before = a:state_dict()
    do
      local step <close> = context()
      step:backward(b(a(ops.ones({2, 3}))):square():sum())
      opt:step(step)
    end
    local after = a:state_dict()
    assert(after.bias:eq(before.bias):all():item() and not after.weight:eq(before.weight):all():item())
    opt:options({lr = 0.25}, 1)
    assert(opt:options().lr == 0.5 and opt:options({}, 1).lr == 0.25)
    opt:options{lr = 0.125}
    assert(opt:options({}, 1).lr == 0.125)

    local one, two = optim.sgd(a, {lr = 1}), optim.sgd(b, {lr = 1})
    local step <close> = context()
    step:backward(b(a(ops.ones({2, 3}))):square():sum())
    local na, nb = one:clip_grad_norm(1e9, step), two:clip_grad_norm(1e9, step)
    local both = optim.clip_grad_norm({one, two}, 1e-3, step)
    assert(math.abs(both - math.sqrt(na * na + nb * nb)) < 1e-5 * both)
    assert(optim.clip_grad_norm({one, two}, 1e9, step) < 1.1e-3)
    local weights = {a:state_dict(), b:state_dict()}
    optim.step_all({one, two}, step)
    for i, actor in ipairs{a, b} do
      assert(not actor:state_dict().weight:eq(weights[i].weight):all():item())
    end
  )lua") == "");
  CHECK(shell.run(R"lua(
    local x, y = tensor{3.0}:requires_grad_(), tensor{4.0}:requires_grad_()
    local loss = (x * x + y * y):sum() / 2
    loss:backward()
    assert(optim.clip_grad_norm({optim.sgd({x}), optim.sgd({y})}, 1) == 5)
    assert(math.abs(x.grad:item() - 0.6) < 1e-5)
  )lua") == "");
  for (const auto& [text, error] : std::vector<std::pair<std::string, std::string>>{
           {"optim.sgd(spawn('Module', 'w1', nn.linear(1, 1)), {groups = 1})",
            "groups is a list of tables, got int64"},
           {"optim.sgd(spawn('Module', 'w1', nn.linear(1, 1)), {groups = {{lr = 1}}})",
            "a group is {params = {\"*.bias\", ...}, option = ...}"},
           {"optim.sgd(spawn('Module', 'w1', nn.linear(1, 1)), {groups = {{params = 'bais'}}}):groups()",
            "group 1 (bais) is for no parameter that no group before it has; there are: bias, weight"},
           {"optim.sgd(nn.linear(1, 1), {groups = {{params = 'bias'}}})", "make an optimizer of each part"},
           {"optim.sgd(nn.linear(1, 1)):options({}, 1)", "there is no group 1: there are 1, from 0"},
           {"optim.sgd(nn.linear(1, 1)):groups()", "is of the optimizer of actors"},
           {"optim.clip_grad_norm({1}, 1)", "number 1 is a number"},
           {"optim.clip_grad_norm({}, 1)", "takes a list of optimizers; got none"},
           {"local s <close> = context(); optim.step_all({}, s)", "takes a list of optimizers; got none"},
           {"local s <close> = context(); optim.step_all({optim.sgd(nn.linear(1, 1))}, s)",
            "an optimizer of tensors here steps by itself"},
           {"optim.clip_grad_norm({optim.sgd(nn.linear(1, 1)), optim.sgd(spawn('Module', 'w1', nn.linear(1, "
            "1)))}, 1)",
            "not of both"},
       }) {
    INFO(text);
    const std::string got = shell.run(text);
    INFO(got);
    CHECK(got.find(error) != std::string::npos);
  }
}
