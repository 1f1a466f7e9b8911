// Adapters of low rank: PEFT's values, files that it reads, a base that stays as it is.
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>

#include "data/formats/safetensors.h"
#include "tests/llm/mesh_world.h"
#include "tests/llm/models.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/process.h"
#include "tests/support/skip.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

Tensor next_loss(llm::Decoder& model, const Tensor& ids) {
  const int64_t time = ids.size(1) - 1;
  return ops::cross_entropy(model(ids.slice(1, 0, time)).flatten(0, 1), ids.slice(1, 1, time + 1).flatten());
}

std::map<std::string, Tensor> base_of(llm::Decoder& model) {
  std::map<std::string, Tensor> base;
  for (const auto& [name, tensor] : model.state_dict())
    if (name.find(".lora_") == std::string::npos) base[name] = tensor.clone_data();
  return base;
}

}  // namespace

TEST_CASE("adapters of PEFT's files give its logits and losses, and the base stays bit for bit") {
  const std::string family = GENERATE("llama", "qwen3");
  CAPTURE(family);
  const ModelValues values = model_values(family);
  const AdapterValues expected = adapter_values(family);
  llm::Decoder model = llm::load_pretrained(model_folder(family), float32);
  llm::load_adapters(model, adapter_folder(family));
  const auto last = [&](llm::Decoder& m) {
    const NoGradGuard no_grad;
    return m(values.ids).select(1, values.ids.size(1) - 1);
  };
  CHECK(largest_difference(last(model), expected.logits) < 1e-5);

  const auto base = base_of(model);
  Tensors trained;
  for (const Tensor& p : model.parameters())
    if (p.requires_grad()) trained.push_back(p);
  CHECK(trained.size() == 2 * 2 * 4);  // A and B, of two layers with four projections
  optim::SGD sgd(model.parameters(), {.lr = 0.1});
  for (const double peer : expected.losses) {
    const Tensor loss = next_loss(model, values.ids);
    CHECK(loss.item<double>() == Approx(peer).margin(1e-5));
    sgd.zero_grad();
    autograd::backward(loss);
    sgd.step();
  }
  for (const auto& [name, tensor] : base_of(model)) CHECK(ops::equal(tensor, base.at(name)));
  for (const Tensor& p : model.parameters())
    if (!p.requires_grad()) CHECK(!p.grad().defined());

  const Tensor before = last(model);
  model.drop_adapters(true);
  CHECK(model.options().lora == std::nullopt);
  CHECK(largest_difference(last(model), before) < 1e-5);
}

TEST_CASE("adapters train on a mesh as in one process, and their files go to and fro") {
  const std::string family = "llama";
  const ModelValues values = model_values(family);
  const AdapterValues expected = adapter_values(family);
  const auto follows = [&](const std::vector<MeshDim>& dims, parallel::Shard shard) {
    CAPTURE(dims.size(), dims[0].name, dims[0].size, static_cast<int>(shard));
    llm::DecoderOptions options = llm::read_config(model_folder(family));
    options.dtype = float32, options.lora = llm::read_adapter_config(adapter_folder(family));
    DecoderMesh world(dims, options);
    parallel::Pipelines pipelines(world.cluster->here(), *world.model, {.micro_batches = 1, .shard = shard});
    llm::load_pretrained(*world.model, model_folder(family));
    llm::load_adapters(*world.model, adapter_folder(family));
    optim::Distributed<optim::SGD> sgd(*world.model, {.lr = 0.1});
    const int64_t time = values.ids.size(1) - 1;
    const Value x(values.ids.slice(1, 0, time)), y(values.ids.slice(1, 1, time + 1));
    const Folder first, last;
    llm::save_adapters(*world.model, options, first.path.string(), "a/base");
    for (const double peer : expected.losses) {
      autograd::Context context(*world.cluster);
      CHECK(pipelines.step(x, y).loss == Approx(peer).margin(1e-5));
      sgd.step(context);
    }
    llm::save_adapters(*world.model, options, last.path.string());
    const auto was = datasets::read_safetensors(adapter_folder(family) + "/adapter_model.safetensors");
    const auto given = datasets::read_safetensors((first.path / "adapter_model.safetensors").string());
    const auto after = datasets::read_safetensors((last.path / "adapter_model.safetensors").string());
    REQUIRE(given.size() == was.size());
    for (const auto& [name, tensor] : was) {
      CAPTURE(name);
      CHECK(ops::equal(given.at(name), tensor));
      CHECK(!ops::equal(after.at(name), tensor));
    }
    CHECK(llm::read_adapter_config(first.path.string()) == *options.lora);
    llm::save_pretrained(*world.model, options, last.path.string());
    const auto base = datasets::read_safetensors((last.path / "model.safetensors").string());
    for (const auto& [name, tensor] : datasets::read_safetensors_folder(model_folder(family)))
      CHECK(ops::equal(base.at(name), tensor.to(float32)));
  };
  follows({{"pp", 1}, {"tp", 2}}, parallel::Shard::none);
  follows({{"pp", 2}, {"tp", 3}}, parallel::Shard::none);
  follows({{"dp", 2}, {"pp", 1}}, parallel::Shard::all);
  follows({{"dp", 2}, {"pp", 2}, {"tp", 2}}, parallel::Shard::state);
}

TEST_CASE("PEFT reads the adapters' files") {
  if (std::system("python3 -c 'import peft, torch, transformers' 2>/dev/null") != 0)
    return skip_test("PyPI's peft, torch and transformers are not installed");
  const Folder folder;
  llm::Decoder model = llm::load_pretrained(model_folder("llama"), float32);
  model.adapt({.r = 3, .lora_alpha = 6, .target_modules = {"q_proj", "gate_proj", "down_proj"}});
  for (auto& [number, layer] : model.layers) nn::init::normal_(layer.mlp.down_proj.lora_B->weight, 0, 0.1);
  llm::save_adapters(model, (folder.path / "adapters").string(), model_folder("llama"));
  llm::save_pretrained(model, (folder.path / "model").string());
  const Tensor ids = model_values("llama").ids;
  const NoGradGuard no_grad;
  datasets::write_safetensors((folder.path / "expected.safetensors").string(),
                              {{"ids", ids}, {"logits", model(ids)}});
  Process python({"/usr/bin/env", "python3", std::string(kSourceFolder) + "/tests/llm/peft_reads.py",
                  folder.path.string()});
  const int code = python.exit_code();
  INFO(python.output << python.errors);
  CHECK(code == 0);
}

TEST_CASE("adapters that do not fit are refused before anything changes") {
  llm::Decoder model = llm::load_pretrained(model_folder("llama"), float32);
  const auto refused = [&](const std::string& config, const std::string& text) {
    const Folder folder;
    std::filesystem::copy(adapter_folder("llama"), folder.path, std::filesystem::copy_options::recursive);
    if (!config.empty()) std::ofstream(folder.path / "adapter_config.json") << config;
    CHECK_THAT(error_of([&] { llm::load_adapters(model, folder.path.string()); }).what(),
               Catch::Contains(text));
    CHECK(!model.options().lora);
    for (const Tensor& p : model.parameters()) CHECK(p.requires_grad());
  };
  const std::string start = R"({"peft_type": "LORA", "r": 4, "lora_alpha": 10, )";
  refused("{", "adapter_config.json");
  refused(R"({"peft_type": "IA3"})", "peft_type is \"IA3\", expected \"LORA\"");
  refused(start + R"("target_modules": ["q_proj"], "use_dora": true})",
          "use_dora is true, which is not known here");
  refused(start + R"("target_modules": "all-linear"})", "expected a list of texts");
  refused(start + R"("target_modules": ["c_attn"]})", "target_modules has \"c_attn\"");
  refused(start + R"("target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "down_proj"]})",
          "k_proj.lora_A.weight");
  refused(start + R"("target_modules": ["q_proj", "v_proj", "o_proj"]})", "it is of another base");
  refused(
      R"({"peft_type": "LORA", "r": 5, "lora_alpha": 10, "target_modules": ["q_proj", "v_proj", "o_proj", "down_proj"]})",
      "lora_A.weight");
  CHECK_THAT(error_of([&] { llm::save_adapters(model, "/tmp"); }).what(), Catch::Contains("no adapters"));
  CHECK_THAT(error_of([&] { llm::load_adapters(model, adapter_folder("qwen3")); }).what(),
             Catch::Contains("q_proj"));
}
