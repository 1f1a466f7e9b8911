// Pipelines on a mesh in the shell.
#include <catch2/catch.hpp>

#include <string>

#include "tools/repl/lua/interpreter.h"
#include "troupe/pipeline.h"

using namespace troupe;

namespace {

struct Squasher : nn::ModuleActor<nn::Linear> {
  Squasher() : ModuleActor(3, 3) {}
  Tensor squash(Tensor x) { return tanh(net(x)); }
  Tensor distance(Tensor x, Tensor y) { return mse_loss(x, y); }
  static constexpr auto remote = methods<constructor<>, &Squasher::squash, &Squasher::distance>;
};

// Runs a script in a shell of four workers; the error, or nothing.
std::string run(const std::string& text) {
  repl::Interpreter interpreter{Cluster::in_process(4, hosting<Squasher>()), {}, {}};
  return interpreter.run(text, "=test", false).error;
}

}  // namespace

TEST_CASE("in the shell pipelines on a mesh train as one pipeline does on the whole batch") {
  CHECK(run(R"lua(
    manual_seed(4)
    local stages = {nn.sequential{nn.linear(3, 5), "tanh"}, nn.linear(5, 2)}
    local x, y = ops.randn({7, 3}), ops.randn({7, 2})
    local function near(p, q) return (p - q):abs():max():item() < 1e-5 end
    for _, case in ipairs{{shard = "none"}, {shard = "state"}, {shard = "gradients"}, {shard = "all"},
                          {shard = "all", gather = "step", reduce = "step"}} do
      local options = {loss = "mse_loss", micro_batches = 2}
      for k, v in pairs(case) do options[k] = v end
      local p = pipelines(mesh{{"dp", 2}, {"pp", 2}}, stages, options)
      local actors = p:actors()
      assert(#actors == 4 and actors[3].worker == "w2" and tostring(p) == "2 pipelines of 2 stages", tostring(p))
      local a, b = spawn("Module", "w0", stages[1]), spawn("Module", "w1", stages[2])
      local one = pipeline({a, b}, {loss = "mse_loss", micro_batches = 3})
      local opt, same
      local function whole(x)
        local all = {}
        for _, rows in ipairs(p:forward(x)) do all[#all + 1] = rows end
        return ops.cat(all, 0)
      end
      if case.shard == "all" then
        assert(actors[1].type:find("ShardedModule$"), actors[1].type)
      else
        a:load_state_dict(actors[1]:state_dict())
        b:load_state_dict(actors[2]:state_dict())
        same = optim.sgd({a, b}, {lr = 0.2, momentum = 0.9})
      end
      opt = optim.sgd(p, {lr = 0.2, momentum = 0.9})
      local first, last
      for _ = 1, 6 do
        local step <close> = context()
        local loss = p:step(x, y):get()
        assert(loss.weight == 7)
        opt:step(step)
        first, last = first or loss.loss, loss.loss
        if same then
          local own <close> = context()
          assert(math.abs(one:step(x, y):get().loss - loss.loss) < 1e-5)
          same:step(own)
        end
      end
      assert(last < first)
      if same then assert(near(whole(x), b(a(x)):get())) end
      local report = p:report()
      assert(report:find("^dp 2 x pp 2 with Shard::" .. case.shard), report)
      assert(report:find("pp 1, by formula") and report:find("dp 1: ") and report:find("to other stages"), report)
    end
  )lua") == "");
}

TEST_CASE("in the shell a worker takes the place of another one in pipelines") {
  CHECK(run(R"lua(
    local function losses(dims, moves)
      manual_seed(4)
      local x, y = ops.randn({6, 3}), ops.randn({6, 2})
      local p = pipelines(mesh(dims, {"w0", "w1"}), {nn.sequential{nn.linear(3, 5), nn.dropout(0.2), nn.linear(5, 2)}},
                          {loss = "mse_loss", micro_batches = 1})
      local opt, all = optim.adam(p, {lr = 0.1}), {}
      for i = 1, 6 do
        if i == 3 and moves then p:replace("w1", "w3") assert(p:actors()[2].worker == "w3") end
        if i == 5 and moves then p:replace("w0", "w2") end
        local step <close> = context()
        all[i] = p:step(x, y):get().loss
        opt:step(step)
      end
      if moves then p:shrink(0) assert(#p:actors() == 1) end
      return table.concat(all, " ")
    end
    local dims = {{"dp", 2}, {"pp", 1}}
    local calm, moved = losses(dims), losses(dims, true)
    assert(calm == moved, calm .. "\n" .. moved)
  )lua") == "");
}

TEST_CASE("in the shell pipelines take actors, one for each point of the mesh, and a loss of theirs") {
  CHECK(run(R"lua(
    local m = mesh({{"dp", 2}, {"pp", 2}})
    local actors = {}
    for w = 0, 3 do actors[w + 1] = spawn("Squasher", w) end
    local p = pipelines(m, actors, {method = "squash", loss = "distance", micro_batches = 2})
    local opt = optim.sgd(p, {lr = 0.5})
    local x = ops.randn({6, 3})
    local first, last
    for _ = 1, 10 do
      local step <close> = context()
      last = p:step(x, ops.tanh(x)):get().loss
      first = first or last
      opt:step(step)
    end
    assert(last < first)
  )lua") == "");
}

TEST_CASE("in the shell what pipelines cannot be made of is refused") {
  const auto refused = [](const std::string& script, const std::string& why) {
    INFO(script);
    CHECK_THAT(run(script), Catch::Contains(why));
  };
  refused("pipelines(mesh{{'pp', 4}}, {nn.linear(3, 3)})", "1 stages for dimension pp of size 4");
  refused("pipelines(mesh{{'dp', 4}}, {nn.linear(3, 3)})", "no dimension pp");
  refused("pipelines(mesh{{'pp', 4}}, {})", "there are no stages");
  refused("pipelines(mesh{{'pp', 4}}, 3)", "takes a list of stages");
  refused("pipelines(mesh{{'pp', 4}}, {spawn('Squasher', 'w0')}, {method = 'squash'})",
          "1 values of 4 actors");
  refused("pipelines(mesh{{'pp', 4}}, {spawn('Squasher', 'w0')})", "has no method");
  const std::string four = "local l = nn.linear(3, 3) pipelines(mesh{{'pp', 4}}, {l, l, l, l}, ";
  refused(four + "{shard = 'some'})", "expected none, state, gradients or all");
  refused(four + "{gather = 'never'})", "expected use or step");
  refused(four + "{los = 'mse_loss'})", "did you mean \"loss\"");
  refused(four + "{loss = 'mse_los'})", "unknown operator");
}
