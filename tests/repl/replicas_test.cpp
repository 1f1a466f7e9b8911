// Data parallel training in the shell.
#include <catch2/catch.hpp>

#include <string>

#include "tools/repl/lua/interpreter.h"
#include "troupe/replicas.h"

using namespace troupe;

namespace {

struct Scorer : nn::ModuleActor<nn::Linear> {
  Scorer() : ModuleActor(3, 2) {}
  Tensor forward(Tensor x) { return net(x); }
  Tensor loss(Tensor x, Tensor y, double scale) { return mse_loss(net(x), y) * scale; }
  static constexpr auto remote = methods<constructor<>, &Scorer::forward, &Scorer::loss>;
};

// Runs scripts in a shell of three workers; the error, or nothing.
struct ShellOfReplicas {
  repl::Interpreter interpreter{Cluster::in_process(3, hosting<Scorer>()), {}, {}};
  std::string run(const std::string& text) { return interpreter.run(text, "=test", false).error; }
};

}  // namespace

TEST_CASE("in the shell replicas train as one actor does on the whole batch") {
  ShellOfReplicas shell;
  CHECK(shell.run(R"lua(
    manual_seed(4)
    local x, y = ops.randn({7, 3}), ops.randn({7, 2})
    local actors = {spawn("Scorer", "w1"), spawn("Scorer", "w0"), spawn("Scorer", "w2")}
    local alone = spawn("Scorer", "w2")
    alone:load_state_dict(actors[1]:state_dict())
    local net = data_parallel(actors)
    assert(#net == 3 and net:replicas()[2] == actors[2])
    assert(tostring(net):find("^3 replicas: Scorer#0:%d+ on w1"), tostring(net))
    local opt, one = optim.sgd(net, {lr = 0.5, momentum = 0.9}), optim.sgd(alone, {lr = 0.5, momentum = 0.9})
    local function near(p, q) return (p - q):abs():max():item() < 1e-5 end
    for _, rows in ipairs{7, 2, 5} do
      local step <close> = context()
      local a, b = x[":" .. rows], y[":" .. rows]
      local loss = net:mean("loss", split(a), split(b), 2.0)
      local want = alone:loss(a, b, 2.0)
      assert(near(loss:get(), want:get()))
      step:backward(loss)
      step:backward(want)
      assert(math.abs(opt:clip_grad_norm(1, step) - one:clip_grad_norm(1, step)) < 1e-5)
      opt:step(step)
      one:step(step)
    end
    for _, a in ipairs(actors) do
      assert(near(a:state_dict().weight, alone:state_dict().weight))
      assert(a:state_dict().bias:eq(actors[1]:state_dict().bias):all():item())
    end
    assert(near(net(x):get(), alone(x):get()))
    assert(near(net:rows("forward", split{x["0:1"], x["1:5"], x["5:7"]}):get(), alone(x):get()))

    local step <close> = context()
    do
      local later <close> = net:accumulate()
      step:backward(net:mean("loss", split(x), split(y), 1.0))
    end
    step:backward(net:mean("loss", split(x), split(y), 1.0))
    for _ = 1, 2 do step:backward(alone:loss(x, y, 1.0)) end
    assert(math.abs(opt:clip_grad_norm(1e9, step) - one:clip_grad_norm(1e9, step)) < 1e-5)
  )lua") == "");
}

TEST_CASE("in the shell a module has a replica on each worker") {
  ShellOfReplicas shell;
  CHECK(shell.run(R"lua(
    local net = data_parallel(nn.linear(3, 2))
    assert(#net == 3 and net:replicas()[3].worker == "w2" and net:replicas()[1].type == "Module")
    local opt = optim.sgd(net, {lr = 0.1})
    local x, y = ops.ones({6, 3}), ops.zeros({6, 2})
    local first, last
    for _ = 1, 20 do
      local step <close> = context()
      local loss = ops.mse_loss(net(x), y)
      step:backward(loss)
      opt:step(step)
      first, last = first or loss:item(), loss:item()
    end
    assert(last < 0.1 * first)
    local two = data_parallel(nn.linear(3, 2), {on = {"w1", "w2"}, buffers = false, bucket = 100, compression = "bf16"})
    assert(#two == 2 and two:replicas()[1].worker == "w1" and two(x):get().shape[1] == 6)
    for _, options in ipairs{{compression = "powersgd(1)"}, {aggregation = "median"},
                          {average_every = 2, outer_lr = 0.7, outer_momentum = 0.5}} do
      local own = data_parallel(nn.linear(32, 16), options)
      local opt, losses = optim.sgd(own, {lr = 0.1}), {}
      for _ = 1, 10 do
        local step <close> = context()
        local loss = ops.mse_loss(own(ops.ones({6, 32})), ops.zeros({6, 16}))
        step:backward(loss)
        opt:step(step)
        losses[#losses + 1] = loss:item()
      end
      assert(losses[10] < 0.5 * losses[1])
    end
    local apart = data_parallel(nn.linear(3, 2), {average_every = 3, average_after = 1})
    apart(x):get()
    apart:average()
  )lua") == "");
}

TEST_CASE("in the shell replicas divide a model, and its state goes from one shard to another") {
  ShellOfReplicas shell;
  CHECK(shell.run(R"lua(
    local layers = nn.sequential{nn.linear(3, 4), "tanh", nn.linear(4, 2)}
    local net = data_parallel(layers, {shard = "all"})
    assert(net:replicas()[1].type:find("ShardedModule$"))
    local piece = net:replicas()[1]:state_dict()["0.weight"]
    assert(piece == nil or piece:numel() < 12)
    local plain = data_parallel(layers, {shard = "none", on = {"w2", "w0"}})
    plain:load_state_dict(net:state_dict())
    local x, y = ops.randn({7, 3}), ops.randn({7, 2})
    assert(net(x):get():eq(plain(x)):all():item())
    local a, b = optim.adam(net, {lr = 0.1}), optim.adam(plain, {lr = 0.1})
    for _ = 1, 3 do
      local step <close> = context()
      local p, q = ops.mse_loss(net(x), y), ops.mse_loss(plain(x), y)
      step:backward(p)
      step:backward(q)
      a:step(step)
      b:step(step)
      assert(math.abs(p:item() - q:item()) < 1e-5)
    end
    assert(net:report():find("^3 replicas with Shard::all of a model of 104 B"), net:report())
    local one = data_parallel(nn.linear(3, 2), {shard = "all"})  -- a module that is one part
    assert(one(x):get().shape[1] == 7)
    assert(one:state_dict().weight:numel() == 6)
  )lua") == "");
}

TEST_CASE("in the shell replicas that cannot be say why") {
  ShellOfReplicas shell;
  for (const auto& [text, error] : std::vector<std::pair<std::string, std::string>>{
           {"data_parallel(3)", "takes a module or a list of actors, got int64"},
           {"data_parallel{}", "takes the actors; got none"},
           {"data_parallel{1}", "a list of references to actors, or a module; got int64"},
           {"data_parallel{spawn('Scorer', 'w0'), spawn('Module', 'w1', nn.linear(3, 2))}",
            "replicas are actors of one type; got Scorer"},
           {"data_parallel(nn.linear(3, 2), {buffer = false})", "did you mean \"buffers\"?"},
           {"data_parallel(nn.linear(3, 2), {compression = 'zip'})", "option compression"},
           {"data_parallel(nn.linear(3, 2), {aggregation = 'medain'})", "expected mean, or one of those"},
           {"data_parallel(nn.linear(3, 2), {compression = 'powersgd(0)'})",
            "expected a rank from 1 to 1024"},
           {"data_parallel(nn.linear(3, 2), {average_every = -1})", "every -1 steps: expected 1 or more"},
           {"data_parallel(nn.linear(3, 2), {outer_lr = 0.7})",
            "every 1 or more: without it there is no mean"},
           {"data_parallel(nn.linear(3, 2)):average()", "nothing averages these replicas"},
           {"data_parallel(nn.linear(3, 2), {shard = 'half'})", "expected none, state, gradients or all"},
           {"data_parallel({spawn('Scorer', 'w0')}, {shard = 'all'})(ops.ones({2, 3})):get()",
            "parallel::Sharded<...>"},
           {"data_parallel({spawn('Scorer', 'w0')}, {on = 'w1'})", "has no option \"on\""},
           {"data_parallel(nn.linear(3, 2), {on = 1})", "expected the name of a worker or a list of them"},
           {"data_parallel{spawn('Scorer', 'w0')}:mean('loss', ops.ones({2, 3}), ops.ones({2, 2}), 1)",
            "write split(x) for those that have rows"},
           {"data_parallel{spawn('Scorer', 'w0')}:mean('lose', split(ops.ones({2, 3})))",
            "Scorer has no method \"lose\"; did you mean \"loss\"?"},
           {"data_parallel{spawn('Scorer', 'w0')}:accumulate()", "local step <close> = context() before it"},
           {"data_parallel{spawn('Scorer', 'w0')}(tensor(1.0))", "expected a tensor with rows"},
       }) {
    INFO(text);
    const std::string got = shell.run(text);
    INFO(got);
    CHECK(got.find(error) != std::string::npos);
  }
}
