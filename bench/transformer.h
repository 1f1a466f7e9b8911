// The character transformer of the benchmarks, as the peer has it: pre-norm blocks, causal attention, GELU.
#pragma once
#include "troupe/troupe.h"

namespace troupe::bench {

struct CharTransformer : nn::Module {
  CharTransformer(int64_t vocabulary, int64_t width, int64_t layers, int64_t heads, int64_t context)
      : tokens(vocabulary, width), positions(context, width), norm(width), head(width, vocabulary) {
    const nn::TransformerEncoderLayerOptions gpt{
        .dim_feedforward = 4 * width, .dropout = 0, .activation = "gelu", .norm_first = true, .causal = true};
    for (int64_t i = 0; i < layers; ++i) blocks.add(nn::TransformerEncoderLayer(width, heads, gpt));
  }
  void members(nn::Members& m) override {
    m("tokens", tokens), m("positions", positions), m("blocks", blocks), m("norm", norm), m("head", head);
  }
  /// ids [batch, time] with time <= context; scores [batch * time, vocabulary].
  Tensor operator()(const Tensor& ids) {
    const Tensor x = tokens(ids) + positions.weight.slice(0, 0, ids.size(1));
    const Tensor scores = head(norm(blocks(x)));
    return scores.reshape({-1, scores.size(2)});
  }

  nn::Embedding tokens, positions;
  nn::Sequential blocks;
  nn::LayerNorm norm;
  nn::Linear head;
};

}  // namespace troupe::bench
