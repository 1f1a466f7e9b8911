// The transformer of trajectories.json in stages that are made of parts: for tests of such stages, and of
// layouts.
#pragma once
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "parallel/pipeline/pipelines.h"
#include "parallel/pipeline/stage_layers.h"
#include "parallel/sharded/sharded_encoder_layer.h"
#include "parallel/tensor/vocabulary.h"
#include "tests/support/trajectory.h"
#include "troupe/troupe.h"

namespace troupe::testing::stage_parts {

using parallel::Sharded;

struct Words : nn::Module {
  Words(const Group& tp, int64_t vocabulary) : tok(tp, vocabulary, 64) {}
  tp::Part operator()(const Tensor& ids) { return tok(ids); }
  void members(nn::Members& m) override { m("tok", tok); }
  tp::VocabularyEmbedding tok;
};
struct Top : nn::Module {
  Top(const Group& tp, int64_t vocabulary) : head(tp, 64, vocabulary) {}
  Tensor operator()(const Tensor& x) { return head(norm(x)); }
  void members(nn::Members& m) override { m("norm", norm), m("head", head); }
  nn::LayerNorm norm{64};
  tp::Head head;
};

// Some of the blocks, with what is before the first and behind the last. Positions are in no part.
struct StageNet : nn::Module {
  StageNet(const Mesh& mesh, int64_t vocabulary) {
    const nn::TransformerEncoderLayerOptions gpt{
        .dim_feedforward = 256, .dropout = 0, .activation = "gelu", .norm_first = true, .causal = true};
    const Group tp = mesh["tp"];
    const parallel::StageLayers own(mesh, 4);
    if (own.first()) words.emplace(tp, vocabulary), pos = zeros({64, 64}).requires_grad_();
    for (const size_t b : own) blocks.try_emplace(b, tp, 64, 4, gpt);
    if (own.last()) top.emplace(tp, vocabulary);
  }
  Task<Tensor> forward(Tensor x) {
    if (words) {
      x = co_await (*words)(x);
      x = x + pos;
    }
    for (auto& [number, block] : blocks) x = co_await block(x);
    if (top) x = co_await (*top)(x);
    co_return x;
  }
  void members(nn::Members& m) override {
    if (words) m("words", *words), m("pos", pos);
    for (auto& [number, block] : blocks) m("block" + std::to_string(number), block);
    if (top) m("top", *top);
  }
  std::optional<Sharded<Words>> words;
  Tensor pos;
  std::map<size_t, Sharded<tp::TransformerEncoderLayer>> blocks;
  std::optional<Sharded<Top>> top;
};

// Of a parameter in the parts.
inline std::string name_of_run(std::string name) {
  for (const char* within : {"module.", "words.", "top."})
    if (const size_t at = name.find(within); at != std::string::npos) name.erase(at, std::strlen(within));
  return name == "tok.weight" ? "tok" : name;
}

using Values = std::map<std::string, Tensor>;

struct PartStage : nn::ModuleActor<StageNet> {
  PartStage(Mesh mesh, int64_t vocabulary, Values start = {}) : ModuleActor(mesh, vocabulary) {
    if (!start.empty()) load(std::move(start));
  }
  Task<Tensor> forward(Tensor x) { return net.forward(std::move(x)); }
  Task<Tensor> loss(Tensor logits, Tensor y) {
    return net.top->module.head.cross_entropy(std::move(logits), std::move(y));
  }
  void load(Values whole) {
    Values own;
    for (const auto& [name, parameter] : net.named_parameters()) own[name] = whole.at(name_of_run(name));
    tp::load_whole_state(net, own);
  }
  static constexpr auto remote = methods<&PartStage::forward, &PartStage::loss, &PartStage::load>;
};

inline Values start_of(const Run& run) {
  Values start;
  for (size_t i = 0; i < run.parameters.size(); ++i)
    start[run.parameters[i].name] = initial(run.parameters[i], static_cast<int>(i));
  return start;
}
inline parallel::Stage method() {
  return parallel::stage<&PartStage::forward>().with_loss<&PartStage::loss>();
}

}  // namespace troupe::testing::stage_parts
