// The character transformer of trajectories.json in pieces: a run of it, as a pipeline of any number of
// stages.
#pragma once
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "parallel/pipeline/pipeline.h"
#include "tests/support/trajectory.h"
#include "troupe/troupe.h"

namespace troupe::testing {

inline constexpr int64_t kBlocks = 4;

/// Blocks [begin, end); the first piece has the embeddings besides, the last one norm and head.
struct PieceNet : nn::Layer {
  PieceNet(int64_t begin, int64_t end, int64_t vocabulary)
      : begin(begin), first(begin == 0), last(end == kBlocks), norm(64), head(64, vocabulary) {
    tok = zeros({vocabulary, 64}).requires_grad_();
    pos = zeros({64, 64}).requires_grad_();
    const nn::TransformerEncoderLayerOptions gpt{
        .dim_feedforward = 256, .dropout = 0, .activation = "gelu", .norm_first = true, .causal = true};
    for (int64_t i = begin; i < end; ++i) blocks.emplace_back(64, 4, gpt);
  }
  Tensor forward(const Tensor& in) override {
    const Tensor here = in.to(parameters().front().device());
    Tensor x = first ? add(ops::embedding(here, tok), pos) : here;
    for (auto& block : blocks) x = block(x);
    return last ? head(norm(x)) : x;
  }
  void members(nn::Members& m) override {
    if (first) m("tok", tok), m("pos", pos);
    for (size_t i = 0; i < blocks.size(); ++i)
      m("block" + std::to_string(begin + static_cast<int64_t>(i)), blocks[i]);
    if (last)
      m("norm", norm), m("head", head);
    else
      m.without(norm), m.without(head);
  }
  int64_t begin;
  bool first, last;
  Tensor tok, pos;
  std::deque<nn::TransformerEncoderLayer> blocks;
  nn::LayerNorm norm;
  nn::Linear head;
};

struct Piece : nn::ModuleActor<PieceNet> {
  Piece(int64_t begin, int64_t end, int64_t vocabulary) : ModuleActor(begin, end, vocabulary) {}
  Tensor forward(Tensor x) { return net(x); }
  Tensor loss(Tensor logits, Tensor y) {
    return cross_entropy(reshape(logits, {-1, logits.size(2)}), reshape(y.to(logits.device()), {-1}));
  }
  static constexpr auto remote = methods<&Piece::forward, &Piece::loss>;
};

/// `count` pieces, one after the other on workers 1, 2, ... (of n: modulo n), with the initial values of the
/// run.
inline std::vector<RRef<Piece>> spawn_pieces(Cluster& cluster, const Run& run, int64_t count) {
  const int64_t vocabulary = run.parameters[0].shape[0];
  const auto workers = static_cast<int64_t>(cluster.workers().size());
  std::vector<RRef<Piece>> pieces;
  for (int64_t i = 0; i < count; ++i) {
    pieces.push_back(
        cluster.spawn<Piece>((i + 1) % workers, i * kBlocks / count, (i + 1) * kBlocks / count, vocabulary));
    auto state = nn::remote_state_dict(pieces.back()).get();
    for (size_t k = 0; k < run.parameters.size(); ++k)
      if (const auto at = state.find(run.parameters[k].name); at != state.end())
        at->second = initial(run.parameters[k], static_cast<int>(k));
    nn::load_remote_state_dict(pieces.back(), std::move(state)).get();
  }
  return pieces;
}

/// The losses of the run's first `steps` steps.
inline std::vector<double> train_pipeline(Cluster& cluster, const Run& run, int steps, int64_t count,
                                          const parallel::PipelineOptions& options) {
  const auto pieces = spawn_pieces(cluster, run, count);
  std::vector<parallel::Stage> stages;
  for (const auto& piece : pieces) stages.push_back(parallel::stage<&Piece::forward>(piece));
  stages.back() = stages.back().with_loss<&Piece::loss>();
  parallel::Pipeline pipeline(cluster.here(), stages, options);
  optim::DistributedOptimizer optimizer({pieces.begin(), pieces.end()}, run.optimizer, run.options);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    const auto [x, y] = batch(run, step);
    autograd::Context context(cluster);
    losses.push_back(pipeline.step(Value(x), Value(y)).loss);
    optimizer.step(context);
  }
  return losses;
}

}  // namespace troupe::testing
