// A language model on a GPU: adapters of PEFT's files train there, and texts are written with the cache.
#include <catch2/catch.hpp>

#include "tests/cuda/gpus.h"
#include "tests/llm/models.h"
#include "troupe/llm.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace troupe::testing;

TEST_CASE("adapters of a model on a GPU follow PEFT's losses, and the base stays bit for bit") {
  if (!needs_gpus(1)) return;
  const std::string family = "llama";
  const ModelValues values = model_values(family);
  const AdapterValues expected = adapter_values(family);
  llm::Decoder model = llm::load_pretrained(model_folder(family), float32);
  llm::load_adapters(model, adapter_folder(family));
  model.to(gpu0);
  std::map<std::string, Tensor> base;
  for (const auto& [name, tensor] : model.state_dict())
    if (name.find(".lora_") == std::string::npos) base[name] = tensor.to(cpu).clone_data();
  const Tensor ids = values.ids.to(gpu0);
  const int64_t time = ids.size(1) - 1;
  optim::SGD sgd(model.parameters(), {.lr = 0.1});
  for (const double peer : expected.losses) {
    const Tensor logits = model(ids.slice(1, 0, time));
    CHECK(logits.device() == gpu0);
    const Tensor loss = ops::cross_entropy(logits.flatten(0, 1), ids.slice(1, 1, time + 1).flatten());
    CHECK(loss.item<double>() == Approx(peer).margin(1e-4));
    sgd.zero_grad();
    autograd::backward(loss);
    sgd.step();
  }
  for (const auto& [name, tensor] : model.state_dict())
    if (const auto it = base.find(name); it != base.end()) CHECK(bit_equal(tensor.to(cpu), it->second));
}

TEST_CASE("a model on a GPU writes with the cache what transformers' model writes") {
  if (!needs_gpus(1)) return;
  for (const std::string family : {"llama", "gemma2"}) {
    INFO(family);
    const ModelValues values = model_values(family);
    llm::Decoder model = llm::load_pretrained(model_folder(family), float32);
    model.to(gpu0);
    std::vector<std::vector<int64_t>> prompts;
    for (int64_t row = 0; row < 2; ++row) prompts.push_back(values.ids.select(0, row).to_vector<int64_t>());
    const int64_t more = static_cast<int64_t>(values.greedy[0].size());
    CHECK(llm::generate(model, prompts, {.max_new_tokens = more}) == values.greedy);
    // Prompts in parts, and too few pages for both: the second is put off and computed again.
    CHECK(llm::generate(model, prompts, {.max_new_tokens = more},
                        {.cache = {.pages = 7, .page_size = 4}, .tokens = 5}) == values.greedy);
  }
}

TEST_CASE("a served model whose ranks are on GPUs writes for its clients what it writes on the host") {
  if (!needs_gpus(2)) return;
  const ModelValues values = model_values("llama");
  const auto cluster = Cluster::in_process(3);
  const llm::ServedModel model =
      llm::serve_model(cluster->here(), Mesh(*cluster, {{"tp", 2}}, {"w1", "w2"}), model_folder("llama"),
                       {.dtype = float32, .limits = {.cache = {.pages = 16, .page_size = 4}, .tokens = 20}});
  const std::vector<AnyRef> ranks = model.server.call<&llm::ModelServer::ranks>().get();
  nn::remote_to(ranks[0], "cuda:0").get(), nn::remote_to(ranks[1], "cuda:1").get();
  std::vector<llm::Generation> texts;
  for (int64_t i = 0; i < 3; ++i)
    texts.push_back(model.generate(cluster->here(), values.ids.select(0, i % 2).to_vector<int64_t>(),
                                   {.max_new_tokens = static_cast<int64_t>(values.greedy[0].size())}));
  for (size_t i = 0; i < 3; ++i) CHECK(texts[i].rest() == values.greedy[i % 2]);
}
