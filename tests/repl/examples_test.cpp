// The scripts of examples/repl run, and mixed.lua, data_parallel.lua and sharded.lua give the bits of the
// same programs in C++.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "data/datasets/digits.h"
#include "data/datasets/loader.h"
#include "llm/tokenizer.h"
#include "nn/make.h"
#include "nn/nn.h"
#include "ops/ops.h"
#include "parallel/data/data_parallel.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/server/served_module.h"
#include "tests/support/folder.h"
#include "tests/support/places.h"
#include "tests/support/skip.h"
#include "tools/repl/lua/interpreter.h"
#include "tools/repl/lua/objects.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace troupe::parallel;

namespace {

std::string script(const std::string& name) { return testing::kSourceFolder + ("/examples/repl/" + name); }

// What a script gives, a list of numbers.
std::vector<double> run_script(const std::string& name, std::vector<std::string> arguments, int workers = 3) {
  arguments.insert(arguments.begin(), script(name));
  repl::Interpreter interpreter(Cluster::in_process(workers), {}, arguments);
  lua_State* L = interpreter.state();
  std::vector<double> out;
  if (luaL_loadfilex(L, script(name).c_str(), "t") != LUA_OK || lua_pcall(L, 0, 1, 0) != LUA_OK)
    FAIL(std::string(repl::text_at(L, -1)));
  const Value value = repl::value_at(L, -1);
  if (const auto* list = value.get_if<ValueList>())
    for (const Value& v : *list) out.push_back(Codec<double>::from(v));
  lua_settop(L, 0);
  return out;
}

// mixed.lua, line by line.
std::vector<double> mixed(int steps) {
  const int64_t words = 60, width = 8, topics = 4, length = 6;
  const auto cluster = Cluster::in_process(3);
  manual_seed(3);
  const Value embed = nn::spec_of("sequential", {nn::spec_of("embedding", {words, width}), Value("flatten")}),
              hidden = nn::spec_of("sequential",
                                   {nn::spec_of("linear", {length * width, int64_t{32}}), Value("tanh")}),
              output = nn::spec_of("linear", {int64_t{32}, topics});
  const auto served = [&](const Value& spec, const std::vector<Place>& where, double lr) {
    return serve(cluster->here(), where, nn::make(spec)->parameters(),
                 {.optimizer = "adam", .options = {{"lr", lr}}, .trainers = 2});
  };
  const Served of_words = served(embed, {"w1"}, 0.02), of_hidden = served(hidden, {"w2"}, 0.01),
               of_output = served(output, {"w1", "w2"}, 0.01);
  struct Replica {
    std::vector<RRef<ServedModule>> stages;
    std::unique_ptr<Pipeline> pipeline;
  };
  std::vector<Replica> replicas;
  for (const auto& [first, second] : {std::pair("w1", "w2"), std::pair("w2", "w1")}) {
    Replica r{{cluster->spawn<ServedModule>(first, embed, of_words),
               cluster->spawn<ServedModule>(second, hidden, of_hidden),
               cluster->spawn<ServedModule>(first, output, of_output)},
              nullptr};
    std::vector<Stage> stages;
    for (const auto& s : r.stages) stages.push_back(stage<&ServedModule::forward>(s));
    PipelineOptions options{.schedule = "gpipe", .micro_batches = 1};
    options.loss = [](const Value& out, const Value& y) {
      return ops::cross_entropy(*out.get_if<Tensor>(), *y.get_if<Tensor>());
    };
    r.pipeline = std::make_unique<Pipeline>(cluster->here(), std::move(stages), std::move(options));
    replicas.push_back(std::move(r));
  }
  const auto batch = [&](int64_t size) {
    const Tensor topic = ops::to(ops::floor(ops::rand({size}) * topics), int64);
    const Tensor word = ops::floor(ops::pow(ops::rand({size, length}), 2) * words);
    return std::pair(ops::to(ops::remainder(word + topic.unsqueeze(1) * (words / topics), words), int64),
                     topic);
  };
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    autograd::Context context(*cluster);
    std::vector<Future<StepResult>> begun;
    for (Replica& r : replicas) {
      const auto [x, y] = batch(32);
      begun.push_back(r.pipeline->step_async(Value(x), Value(y)));
    }
    double sum = 0;
    for (const auto& f : begun) sum += f.get().loss / 2;
    std::vector<Future<bool>> pushes;
    for (Replica& r : replicas)
      for (const auto& s : r.stages) pushes.push_back(s.call<&ServedModule::push>(32));
    all(pushes).get();
    losses.push_back(sum);
  }
  return losses;
}

}  // namespace

TEST_CASE("a mixed model in Lua has the bits of the same in C++") {
  const std::vector<double> in_lua = run_script("mixed.lua", {"12"});
  CHECK(in_lua == mixed(12));
  CHECK(in_lua.size() == 12);
}

namespace {

using Layers = nn::Sequential;
struct DigitNet : nn::ModuleActor<Layers> {
  DigitNet() : ModuleActor(nn::Linear(784, 128), nn::ReLU(), nn::Linear(128, 10)) {}
  Tensor forward(Tensor x) { return net(x); }
  static constexpr auto remote = methods<&DigitNet::forward>;
};

// data_parallel.lua, line by line.
std::vector<double> replicated(int workers) {
  const auto cluster = Cluster::in_process(workers, hosting<DigitNet>());
  manual_seed(1);
  datasets::Loader loader(datasets::generated_digits(10'000, 1), {.batch_size = 64});
  const auto names = cluster->workers();
  DataParallel<DigitNet> net(cluster->here(), Group(*cluster, {names.begin(), names.end()}));
  optim::Distributed<optim::Adam> optimizer(net, {.lr = 1e-3});
  std::vector<double> losses;
  for (auto [x, y, index] : loader.epoch(0)) {
    autograd::Context step(*cluster);
    const Tensor loss = cross_entropy(net(x).get(), y);
    step.backward(loss);
    optimizer.step(step);
    losses.push_back(loss.item());
  }
  return losses;
}

}  // namespace

TEST_CASE("replicas in Lua have the bits of the same in C++") {
  const std::vector<double> in_lua = run_script("data_parallel.lua", {"1"});
  CHECK(in_lua.size() == 157);
  CHECK(in_lua == replicated(3));
  CHECK(in_lua.back() < 0.5 * in_lua.front());
  for (const char* shard : {"all", "gradients", "state"}) {
    INFO(shard);
    CHECK(run_script("sharded.lua", {"1", shard}) == in_lua);
  }
  CHECK(run_script("sharded.lua", {"1", "all", "step"}) == in_lua);
}

TEST_CASE("a language model is trained, tuned and served in Lua") {
  try {
    llm::Tokenizer(std::string(testing::kOracleFolder) + "/tokenizers/gpt2.json");
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::unimplemented) return testing::skip_test("this build has no ICU");
    throw;
  }
  const testing::Folder folder;
  const auto at = [&](const std::string& name) { return (folder.path / name).string(); };
  std::filesystem::create_directory(folder.path / "start");
  std::ofstream(at("start/config.json"))
      << R"({"model_type": "qwen3", "vocab_size": 422, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "head_dim": 4,
             "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "tie_word_embeddings": true})";
  std::filesystem::copy_file(std::string(testing::kOracleFolder) + "/tokenizers/gpt2.json",
                             at("start/tokenizer.json"));
  const std::vector<double> cut = run_script(
      "llm.lua", {testing::kText, at("start"), "12", "2", "1", "2", "none", folder.path.string()}, 5);
  CHECK(cut.size() == 12);
  CHECK(cut.back() < cut.front());
  const std::vector<double> alone = run_script(
      "llm.lua", {testing::kText, at("start"), "12", "1", "1", "1", "none", folder.path.string()}, 5);
  for (size_t i = 0; i < 12; ++i) CHECK(cut[i] == Approx(alone[i]).margin(1e-4));
  std::filesystem::copy_file(at("start/tokenizer.json"), at("llm-model/tokenizer.json"));
  const std::vector<double> tuned = run_script(
      "llm.lua", {testing::kText, at("llm-model"), "12", "1", "2", "1", "4", folder.path.string()}, 5);
  CHECK(tuned.back() < cut.front());
  CHECK(std::filesystem::exists(at("llm-adapters/adapter_model.safetensors")));

  repl::Interpreter interpreter(Cluster::in_process(3), {},
                                {"serve.lua", at("llm-model"), at("llm-adapters")});
  lua_State* L = interpreter.state();
  const char* text = R"(
    local t = llm.tokenizer(arg[1])
    local m, s = llm.load(arg[1], {adapters = arg[2]}), llm.serve(arg[1], {adapters = arg[2], on = {"w1", "w2"}})
    local ids, options = t:encode("The end"), {max_new_tokens = 6}
    local own, served, other = m:generate(ids, options), s:generate(ids, options), s:generate(t:encode("A"), options)
    assert(#own == 6 and table.concat(own, " ") == table.concat(served:get(), " "))
    assert(#other:get() == 6 and s:report().texts == 0)
    assert(#m:generate({ids, ids}, options) == 2)
    m:merge()
    m:save(arg[2] .. "-merged")
    assert(table.concat(llm.load(arg[2] .. "-merged"):generate(ids, options), " ") == table.concat(own, " "))
    local ok, why = pcall(llm.load, arg[1], {adapter = "x"})
    assert(not ok and why:find("did you mean \"adapters\"", 1, true), why))";
  if (luaL_dostring(L, text)) FAIL(std::string(repl::text_at(L, -1)));
}

TEST_CASE("the other scripts of the examples run, and draw") {
  const testing::Folder folder;
  run_script("sweep.lua", {"1", folder.path.string() + "/sweep.svg"});
  run_script("policies.lua", {"20", folder.path.string() + "/policies.svg"});
  run_script("tour.lua", {folder.path.string()});
  for (const char* picture : {"sweep.svg", "policies.svg", "loss.svg", "timeline.svg", "graph.dot"})
    CHECK(std::filesystem::file_size(folder.path.string() + "/" + picture) > 500);
}
