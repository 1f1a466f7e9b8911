// Models that transformers wrote give its logits: in one process, and cut in any way.
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

TEST_CASE("models of each family give the logits that transformers gives") {
  const std::string family = GENERATE(from_range(kFamilies));
  CAPTURE(family);
  const ModelValues values = model_values(family);
  llm::Decoder model = llm::load_pretrained(model_folder(family), float32);
  const NoGradGuard no_grad;
  CHECK(largest_difference(model(values.ids), values.logits) < 1e-5);

  llm::Decoder half = llm::load_pretrained(model_folder(family));
  CHECK(half.options().dtype == bfloat16);
  const Tensor last = half(values.ids).select(1, values.ids.size(1) - 1);
  const double scale = ops::max(ops::abs(values.bf16)).item<double>();
  CHECK(largest_difference(last, values.bf16) < 0.03 * std::max(scale, 1.0));
}

namespace {

struct Step {
  double loss;
  std::map<std::string, Tensor> state;  // after the step
};

// One step of SGD on rows and what follows each token in them.
Step step_on(const std::vector<MeshDim>& dims, parallel::Shard shard, const std::string& family,
             const Tensor& ids) {
  llm::DecoderOptions options = llm::read_config(model_folder(family));
  options.dtype = float32;
  DecoderMesh world(dims, options);
  parallel::Pipelines pipelines(
      world.cluster->here(), *world.model,
      {.micro_batches = 1, .tied = llm::tied_stages(options, size_of(dims, "pp")), .shard = shard});
  llm::load_pretrained(*world.model, model_folder(family));
  optim::Distributed<optim::SGD> sgd(*world.model, {.lr = 0.1});
  Step out;
  {
    autograd::Context context(*world.cluster);
    const int64_t time = ids.size(1) - 1;
    out.loss = pipelines.step(Value(ids.slice(1, 0, time)), Value(ids.slice(1, 1, time + 1))).loss;
    sgd.step(context);
  }
  const Folder folder;
  llm::save_pretrained(*world.model, options, folder.path.string());
  out.state = datasets::read_safetensors_folder(folder.path.string());
  return out;
}

}  // namespace

TEST_CASE("transformers reads the folders that are written") {
  if (std::system("python3 -c 'import torch, transformers' 2>/dev/null") != 0)
    return skip_test("PyPI's torch and transformers are not installed");
  const Folder folder;
  for (const std::string& family : kFamilies) {
    llm::Decoder model = llm::load_pretrained(model_folder(family));
    llm::save_pretrained(model, (folder.path / family).string());
    const llm::DecoderOptions again = llm::read_config((folder.path / family).string());
    CHECK(llm::config_json(again) == llm::config_json(model.options()));
  }
  Process python({"/usr/bin/env", "python3", std::string(kSourceFolder) + "/tests/llm/transformers_reads.py",
                  folder.path.string(), std::string(kOracleFolder) + "/language_models/values.json"});
  const int code = python.exit_code();
  INFO(python.output << python.errors);
  CHECK(code == 0);
}

TEST_CASE("a window that a file does not name is the family's, and null is none") {
  const auto window = [](const std::string& field) {
    return llm::parse_config(
               R"({"model_type": "mistral", "vocab_size": 9, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
                                 "num_attention_heads": 2, "max_position_embeddings": 16)" +
                   field + "}",
               "config")
        .sliding_window;
  };
  CHECK(window("") == 4096);
  CHECK(window(", \"sliding_window\": null") == 0);
  CHECK(window(", \"sliding_window\": 5") == 5);
}

TEST_CASE("folders that are none, or of models that are not known, are refused by file and field") {
  const auto refused = [&](const std::string& family, const std::function<void(nlohmann::json&)>& change,
                           const std::string& text) {
    const Folder folder;
    std::filesystem::copy(model_folder(family), folder.path, std::filesystem::copy_options::recursive);
    const std::string file = (folder.path / "config.json").string();
    nlohmann::json config = nlohmann::json::parse(std::ifstream(file));
    change(config);
    std::ofstream(file) << config.dump();
    const auto error = error_of([&] { llm::load_pretrained(folder.path.string()); });
    CHECK(error.kind() == ErrorKind::invalid);
    CHECK_THAT(error.what(), Catch::Contains(folder.path.string()));
    CHECK_THAT(error.what(), Catch::Contains(text));
  };
  refused(
      "llama", [](auto& j) { j["model_type"] = "llama4"; }, "model_type is \"llama4\", expected one of");
  refused(
      "llama", [](auto& j) { j.erase("hidden_size"); }, "hidden_size is missing");
  refused(
      "llama", [](auto& j) { j["hidden_size"] = "24"; }, "hidden_size is \"24\", expected a whole number");
  refused(
      "llama", [](auto& j) { j["rope_parameters"]["rope_type"] = "longrope"; }, "rope_type is \"longrope\"");
  refused(
      "llama", [](auto& j) { j["rope_parameters"]["mscale"] = 2; }, "mscale is not known here");
  refused(
      "llama",
      [](auto& j) {
        j["quantization_config"] = {{"bits", 4}};
      },
      "quantization_config is there");
  refused(
      "llama", [](auto& j) { j["num_key_value_heads"] = 3; },
      "num_key_value_heads is 3, which does not divide");
  refused(
      "llama", [](auto& j) { j["hidden_act"] = "xielu"; }, "hidden_act is \"xielu\"");
  refused(
      "llama", [](auto& j) { j["num_hidden_layers"] = 3; }, "model.layers.2.");
  refused(
      "llama", [](auto& j) { j["num_hidden_layers"] = 1; },
      "is no part of the llama that config.json describes");
  refused(
      "llama", [](auto& j) { j["intermediate_size"] = 44; }, "up_proj");
  refused(
      "gpt2", [](auto& j) { j["scale_attn_by_inverse_layer_idx"] = true; },
      "scale_attn_by_inverse_layer_idx is true");
  refused(
      "gemma3_text", [](auto& j) { j["layer_types"][0] = "chunked"; }, "layer_types has \"chunked\"");
  const Folder folder;
  std::filesystem::copy(model_folder("llama"), folder.path, std::filesystem::copy_options::recursive);
  std::filesystem::remove(folder.path / "model-00002-of-00002.safetensors");
  std::filesystem::remove(folder.path / "model-00002-of-00003.safetensors");
  CHECK_THAT(error_of([&] { llm::load_pretrained(folder.path.string()); }).what(),
             Catch::Contains("model-00002-of-0000"));
  CHECK_THAT(error_of([&] { llm::load_pretrained("/nowhere"); }).what(),
             Catch::Contains("/nowhere: no such file"));
}

TEST_CASE("a step of a model that lies on a mesh is that of one process") {
  const std::string family = GENERATE(from_range(kFamilies));
  CAPTURE(family);
  const Tensor ids = model_values(family).ids;
  const int64_t time = ids.size(1) - 1;
  llm::Decoder alone = llm::load_pretrained(model_folder(family), float32);
  const Tensor loss =
      ops::cross_entropy(alone(ids.slice(1, 0, time)).flatten(0, 1), ids.slice(1, 1, time + 1).flatten());
  autograd::backward(loss);
  optim::SGD sgd(alone.parameters(), {.lr = 0.1});
  sgd.step();
  const Folder folder;
  llm::save_pretrained(alone, folder.path.string());
  const auto expected = datasets::read_safetensors_folder(folder.path.string());
  const auto follows = [&](const std::vector<MeshDim>& dims, parallel::Shard shard) {
    CAPTURE(dims.size(), dims[0].name, dims[0].size, static_cast<int>(shard));
    const Step got = step_on(dims, shard, family, ids);
    CHECK(got.loss == Approx(loss.item<double>()).margin(1e-5));
    REQUIRE(got.state.size() == expected.size());
    for (const auto& [name, tensor] : expected) {
      CAPTURE(name);
      REQUIRE(got.state.contains(name));
      CHECK(largest_difference(got.state.at(name), tensor) < 1e-5);
    }
  };
  follows({{"pp", 1}, {"tp", 2}}, parallel::Shard::none);
  follows({{"pp", 2}}, parallel::Shard::none);
  follows({{"dp", 2}, {"pp", 1}}, parallel::Shard::all);
  if (family == "llama" || family == "gpt2") {
    follows({{"pp", 1}, {"tp", 3}}, parallel::Shard::none);
    follows({{"dp", 2}, {"pp", 2}, {"tp", 2}}, parallel::Shard::none);
    follows({{"dp", 2}, {"pp", 1}, {"tp", 2}}, parallel::Shard::all);
    follows({{"dp", 2}, {"pp", 2}, {"tp", 1}}, parallel::Shard::gradients);
  }
}
