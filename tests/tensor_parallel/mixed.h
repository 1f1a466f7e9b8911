// The transformer of trajectories.json on eight workers, cut along several axes at once.
#pragma once
#include <map>
#include <optional>

#include "tests/support/trajectory.h"
#include "troupe/context_parallel.h"
#include "troupe/pipeline.h"
#include "troupe/tensor_parallel.h"
#include "troupe/troupe.h"

namespace troupe::testing {

inline constexpr size_t kMixedBlocks = 4;

// Width 64, 4 heads, context 64; sequences are cut over "cp", heads over "tp". With `pieces` norms and
// residuals have pieces of the sequence, over "tp".
struct MixedPart : nn::Module {
  MixedPart(const Mesh& mesh, int64_t vocabulary, DType dtype, bool ring, bool of_pieces)
      : cp(mesh["cp"]), tp(mesh["tp"]), sequence(64, cp.size()), pieces(of_pieces) {
    const parallel::StageLayers own(mesh, kMixedBlocks);
    if (own.first()) {
      tok.emplace(tp, vocabulary, 64, tp::LinearOptions{.dtype = dtype});
      pos = zeros({64, 64}, dtype).requires_grad_();
    }
    const nn::TransformerEncoderLayerOptions gpt{.dim_feedforward = 256,
                                                 .dropout = 0,
                                                 .activation = "gelu",
                                                 .norm_first = true,
                                                 .causal = true,
                                                 .dtype = dtype};
    for (const size_t b : own)
      if (pieces)
        blocks.try_emplace(b, tp, 64, 4, gpt);
      else
        cut_blocks.try_emplace(b, cp::Ranks{cp, tp}, 64, 4, gpt, ring ? cp::Way::ring : cp::Way::heads);
    if (!own.last()) return;
    norm.emplace(64, nn::LayerNormOptions{.dtype = dtype});
    head.emplace(tp, 64, vocabulary, tp::LinearOptions{.dtype = dtype});
  }
  Task<Tensor> forward(Tensor x) {
    const auto times = tp::even_sizes(64, tp.size());
    if (tok) {
      const tp::Part part = (*tok)(x);
      x = co_await part;
      x = pieces ? tp::cut(x + pos, tp, 1, times) : cp::cut(x + pos, cp, 1, sequence);
    }
    for (auto& [number, block] : blocks) x = co_await block.of_pieces(x, times);
    for (auto& [number, block] : cut_blocks) x = co_await block(x, sequence);
    if (!head) co_return x;  // pieces go to the next stage
    const auto joining = pieces ? tp::join(x, tp, 1, times) : cp::join(x, cp, 1, sequence);
    x = co_await joining;
    co_return (*head)((*norm)(x));
  }
  Task<Tensor> loss(Tensor logits, Tensor y) { return head->cross_entropy(std::move(logits), std::move(y)); }
  void members(nn::Members& m) override {
    if (tok) m("tok", *tok), m("pos", pos);
    for (auto& [number, block] : blocks) m("block" + std::to_string(number), block);
    for (auto& [number, block] : cut_blocks) m("block" + std::to_string(number), block);
    if (head) m("norm", *norm), m("head", *head);
  }
  Group cp, tp;
  cp::Sequence sequence;
  bool pieces;
  std::optional<tp::VocabularyEmbedding> tok;
  Tensor pos;
  std::map<size_t, tp::TransformerEncoderLayer> blocks;
  std::map<size_t, cp::TransformerEncoderLayer> cut_blocks;
  std::optional<nn::LayerNorm> norm;
  std::optional<tp::Head> head;
};

struct MixedStage : nn::ModuleActor<MixedPart> {
  MixedStage(Mesh mesh, int64_t vocabulary, bool doubles, bool ring, bool pieces)
      : ModuleActor(mesh, vocabulary, doubles ? float64 : float32, ring, pieces) {}
  Task<Tensor> forward(Tensor x) { return net.forward(std::move(x)); }
  Task<Tensor> loss(Tensor logits, Tensor y) { return net.loss(std::move(logits), std::move(y)); }
  void load(std::map<std::string, Tensor> whole) {
    std::map<std::string, Tensor> own;
    for (const auto& [name, parameter] : net.named_parameters())
      if (whole.contains(name)) own[name] = whole[name];
    tp::load_whole_state(net, own);
  }
  static constexpr auto remote = methods<&MixedStage::forward, &MixedStage::loss, &MixedStage::load>;
};

struct Mixed {
  std::string dims, schedule = "1f1b";
  bool ring = false, pieces = false;
  parallel::Shard shard = parallel::Shard::none;
  bool doubles = false;
};

/// The losses of so many steps on eight workers.
inline std::vector<double> losses_of(Cluster& cluster, const Run& run, const Mixed& c, size_t steps) {
  const auto model =
      parallel::spawn<MixedStage>(cluster.here(), Mesh(cluster, mesh_dims(c.dims, {"dp", "pp", "cp", "tp"})),
                                  run.parameters[0].shape[0], c.doubles, c.ring, c.pieces);
  std::map<std::string, Tensor> start;
  for (size_t i = 0; i < run.parameters.size(); ++i) {
    const std::string& name = run.parameters[i].name;
    start[name == "tok" ? "tok.weight" : name] = initial(run.parameters[i], static_cast<int>(i));
  }
  all(model.call<&MixedStage::load>(start)).get();
  parallel::Pipelines train(cluster.here(), model,
                            {.schedule = c.schedule, .micro_batches = 2, .shard = c.shard});
  optim::DistributedOptimizer optimizer({model.actors().begin(), model.actors().end()}, run.optimizer,
                                        run.options);
  std::vector<double> losses;
  for (size_t step = 0; step < steps; ++step) {
    const auto [x, y] = batch(run, static_cast<int>(step));
    autograd::Context context(cluster);
    losses.push_back(train.step(Value(x), Value(y)).loss);
    optimizer.step(context);
  }
  return losses;
}

inline std::vector<Mixed> all_mixtures() {
  using parallel::Shard;
  return {
      {.dims = "cp=8"},
      {.dims = "cp=8", .ring = true, .doubles = true},
      {.dims = "cp=2,tp=4"},
      {.dims = "cp=4,tp=2"},
      {.dims = "cp=4,tp=2", .ring = true},
      {.dims = "dp=2,tp=4", .pieces = true, .shard = Shard::state},
      {.dims = "dp=2,cp=4", .shard = Shard::gradients},
      {.dims = "dp=2,cp=4", .ring = true},
      {.dims = "dp=4,cp=2", .ring = true, .shard = Shard::state},
      {.dims = "dp=2,cp=2,tp=2"},
      {.dims = "dp=2,cp=2,tp=2", .ring = true, .doubles = true},
      {.dims = "dp=2,cp=2,tp=2", .shard = Shard::gradients},
      {.dims = "pp=2,tp=4", .schedule = "zb-h1", .pieces = true},
      {.dims = "pp=4,tp=2", .schedule = "credits(2)", .pieces = true, .doubles = true},
      {.dims = "pp=2,cp=4"},
      {.dims = "pp=4,cp=2", .schedule = "zb-h1", .ring = true},
      {.dims = "pp=2,cp=2,tp=2"},
      {.dims = "pp=2,cp=2,tp=2", .schedule = "zb-h1", .ring = true},
      {.dims = "pp=2,cp=2,tp=2", .schedule = "credits(2)", .doubles = true},
      {.dims = "pp=2,cp=2,tp=2", .schedule = "gpipe", .ring = true},
      {.dims = "dp=2,pp=2,tp=2", .pieces = true},
      {.dims = "dp=2,pp=2,tp=2", .schedule = "zb-h1", .pieces = true, .shard = Shard::state},
      {.dims = "dp=2,pp=2,cp=2", .shard = Shard::gradients},
      {.dims = "dp=2,pp=2,cp=2", .schedule = "zb-h1", .ring = true, .shard = Shard::state, .doubles = true},
  };
}

}  // namespace troupe::testing
