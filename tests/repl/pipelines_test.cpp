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

// Runs a script in a shell of so many workers; the error, or nothing.
std::string run(const std::string& text, int workers = 4) {
  repl::Interpreter interpreter{Cluster::in_process(workers, hosting<Squasher>()), {}, {}};
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

TEST_CASE("in the shell workers of a mesh have several stages each") {
  CHECK(run(R"lua(
    local stages = {nn.sequential{nn.linear(3, 5), "tanh"}, nn.linear(5, 5), nn.linear(5, 4), nn.linear(4, 2)}
    local x, y = ops.randn({8, 3}), ops.randn({8, 2})
    local function losses(points, options)
      options.loss, options.micro_batches = "mse_loss", 2
      manual_seed(4)
      local p = pipelines(points, stages, options)
      local opt, all = optim.sgd(p, {lr = 0.2}), {}
      for i = 1, 3 do
        local step <close> = context()
        all[i] = p:step(x, y):get().loss
        opt:step(step)
      end
      return p:actors(), all
    end
    local actors, chunked = losses(mesh{{"dp", 2}, {"pp", 2}}, {chunks = 2, schedule = "interleaved"})
    assert(#actors == 8 and actors[3].worker == "w0" and actors[4].worker == "w1" and actors[7].worker == "w2")
    local _, plain = losses(mesh({{"dp", 1}, {"pp", 4}}), {})
    for i = 1, 3 do assert(math.abs(chunked[i] - plain[i]) < 1e-5) end
    assert(chunked[3] < chunked[1])
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

TEST_CASE("in the shell layers that are cut over ranks go on when a worker takes the place of another one") {
  CHECK(run(R"lua(
    local function losses(dim, more, moves)
      manual_seed(4)
      local options = {loss = "mse_loss", micro_batches = 1}
      for k, v in pairs(more) do options[k] = v end
      local p = pipelines(mesh({{"dp", 2}, {"pp", 1}, {dim, 2}}, {"w0", "w1", "w2", "w3"}),
                          {nn.sequential{nn.transformer_encoder_layer(16, 2, 32, {dropout = 0})}}, options)
      local x, opt, all = ops.randn({4, 8, 16}), optim.adam(p, {lr = 0.01}), {}
      for i = 1, 4 do
        if i == 3 and moves then p:replace("w1", "w4") end
        if i == 4 and moves then p:replace("w0", "w1") end
        local step <close> = context()
        all[i] = p:step(x, ops.tanh(x)):get().loss
        opt:step(step)
      end
      return table.concat(all, " ")
    end
    for dim, more in pairs{tp = {}, cp = {context = "ring"}, ep = {experts = 4}} do
      local calm, moved = losses(dim, more), losses(dim, more, true)
      assert(calm == moved, dim .. ": " .. calm .. "\n" .. moved)
    end
  )lua",
            5) == "");
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

TEST_CASE("in the shell pipelines on a mesh cut transformer layers along tp, cp and ep") {
  CHECK(run(R"lua(
    local function layer(width)
      return nn.transformer_encoder_layer{width = width, heads = 2, dim_feedforward = 12, dropout = 0, causal = true,
                                          norm_first = true}
    end
    local stages = {{nn.embedding(7, 4), layer(4)}, {layer(4), nn.layer_norm{4}, nn.linear(4, 7)}}
    local one = {{nn.embedding(7, 4), layer(4), layer(4), nn.layer_norm{4}, nn.linear(4, 7)}}
    local ids = ops.remainder(ops.arange(0, 20) * 3 + 1, 7):reshape{4, 5}
    local aims = ops.one_hot(ops.remainder(ids * 3 + 1, 7), 7):to("float32")
    local function trained(dims, stages, options)
      manual_seed(3)
      local workers = {}
      local count = 1
      for _, dim in ipairs(dims) do count = count * dim[2] end
      for w = 1, count do workers[w] = "w" .. (w - 1) end
      options.loss, options.micro_batches = "mse_loss", 2
      local p = pipelines(mesh(dims, workers), stages, options)
      local opt, losses = optim.adam(p, {lr = 0.02}), {}
      for _ = 1, 4 do
        local step <close> = context()
        losses[#losses + 1] = p:step(ids, aims):get().loss
        opt:step(step)
      end
      return losses, p
    end
    local function follow(want, dims, stages, options)
      local got, p = trained(dims, stages, options)
      for i, loss in ipairs(want) do
        assert(math.abs(got[i] - loss) < 2e-5 * loss, ("%s: step %d, %.7f not %.7f"):format(tostring(p), i, got[i], loss))
      end
      return p
    end
    local want = trained({{"pp", 1}}, one, {})
    assert(want[4] < want[1])
    local p = follow(want, {{"tp", 2}, {"pp", 2}}, stages, {})
    assert(p:actors()[1].type:find("MeshModule$"), p:actors()[1].type)
    assert(p:actors()[2]:state_dict()["2.self_attn.in_proj_weight"]:size(0) == 6)
    for _, way in ipairs{"heads", "ring"} do
      follow(want, {{"cp", 4}, {"pp", 1}}, one, {context = way})
      follow(want, {{"pp", 2}, {"cp", 2}}, stages, {context = way})
      follow(want, {{"dp", 2}, {"pp", 1}, {"cp", 2}}, one, {context = way, shard = "state"})
    end
    follow(want, {{"pp", 1}, {"cp", 2}, {"tp", 2}}, one, {})
    local experts = trained({{"pp", 1}}, one, {experts = {count = 3, top_k = 2}})
    assert(experts[4] < experts[1] and experts[1] ~= want[1])
    follow(experts, {{"pp", 1}, {"ep", 3}}, one, {experts = 3})
    follow(experts, {{"pp", 1}, {"ep", 2}, {"cp", 2}}, one, {experts = 3, context = "ring"})
    p = follow(experts, {{"pp", 2}, {"ep", 2}}, stages, {experts = 3})
    assert(p:actors()[1]:state_dict()["1.experts.w1"]:size(0) == 2)
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
  const std::string layer = "nn.transformer_encoder_layer{width = 4, heads = 2}";
  refused("pipelines(mesh{{'pp', 1}, {'xp', 4}}, {nn.linear(3, 3)})", "no use for dimension xp");
  refused("pipelines(mesh{{'pp', 1}, {'tp', 4}}, {nn.linear(3, 3)}):report()", "has none that are cut");
  refused("pipelines(mesh{{'pp', 1}, {'ep', 4}}, {" + layer + "})", "give their number, {experts = 8}");
  refused("pipelines(mesh{{'pp', 1}, {'cp', 4}}, {{" + layer + "}}):report()", "give .dropout = 0");
  refused("pipelines(mesh{{'pp', 1}, {'tp', 4}}, {{" + layer + "}}, {shard = 'all'})",
          "use state or gradients");
  refused("pipelines(mesh{{'pp', 1}, {'cp', 4}}, {{" + layer + "}}, {context = 'circle'})", "heads or ring");
  refused("pipelines(mesh{{'pp', 4}}, {nn.linear(3, 3)}, {experts = 'all'})", "expected their number");
  refused("pipelines(mesh{{'pp', 4}}, {nn.linear(3, 3)}, {experts = {cont = 2}})", "did you mean \"count\"");
  refused(four + "{shard = 'some'})", "expected none, state, gradients or all");
  refused(four + "{gather = 'never'})", "expected use or step");
  refused(four + "{los = 'mse_loss'})", "did you mean \"loss\"");
  refused(four + "{loss = 'mse_los'})", "unknown operator");
}

TEST_CASE("in the shell a model is measured, and its layout planned") {
  CHECK(run(R"lua(
    local profile = measure(nn.sequential{nn.linear(8, 16), "relu", nn.linear(16, 4)}, ops.randn({8, 8}), {repeats = 1})
    assert(#profile.layers == 3 and profile.layers[2].name == "relu" and #profile.workers == 2)
    local found = plan(profile, {batch = 64})
    assert(found.best[1].step > 0 and found.best[1].keys.mesh and found.batch == 64)
    assert(found.table:find("2 workers, 64 rows a step: ", 1, true) and found.table:find("Why not"), found.table)
    local none = plan(profile, {memory = "1K"})
    assert(#none.best == 0 and none.nearest.memory > 1024 and none.table:find("Nothing fits into 1.0 KiB"), none.table)
    local ok, why = pcall(plan, profile, {rows = 3})
    assert(not ok and tostring(why):find('no option "rows"'), why)
    ok, why = pcall(plan, 3)
    assert(not ok and tostring(why):find("a profile is what measure"), why)
    profile.batch = -1
    ok, why = pcall(plan, profile)
    assert(not ok and tostring(why):find('"batch" is -1', 1, true), why)
  )lua",
            2) == "");
}
