// Language models of GPT-2's and Llama's descent, in one process or on a mesh.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collective/mesh.h"
#include "llm/options_codec.h"
#include "llm/sharded_decoder_layer.h"
#include "nn/embedding.h"
#include "parallel/pipeline/stage_layers.h"
#include "parallel/pipeline/tied_parameters.h"
#include "parallel/tensor/vocabulary.h"

namespace troupe::llm {

/// A decoder, whose parameters are named as transformers names those of LlamaForCausalLM. In one process:
///
///   llm::Decoder model({.vocab_size = 256, .hidden_size = 64, .intermediate_size = 172,
///                       .num_hidden_layers = 4, .num_attention_heads = 4});
///   Tensor loss = cross_entropy(model(ids).flatten(0, 1), next.flatten());
///
/// On a mesh whose dimensions are among "dp", "pp" and "tp" it is a stage of Pipelines, and a rank of its
/// layers:
///
///   auto stages = parallel::spawn<parallel::ModuleStage<llm::Decoder>>(cluster.here(), mesh, options);
///   parallel::Pipelines model(cluster.here(), stages, {.shard = parallel::Shard::all});
class Decoder final : public nn::Module {
 public:
  /// Weights start normal with a deviation of initializer_range. `invalid` as check().
  explicit Decoder(const DecoderOptions& options);
  /// In a method, or a constructor, of an actor on the mesh.
  Decoder(const Mesh& mesh, const DecoderOptions& options);

  /// A call of a whole one: ids int64 [batch, time] -> logits [batch, time, vocab_size]. `invalid` for ids
  /// outside of the vocabulary, for more of them than a learned table of positions has, and if it is a part
  /// of a model.
  Tensor operator()(const Tensor& ids);
  /// On a stage: ids, or the stage before's activations, -> activations, or this rank's logits.
  Task<Tensor> forward(Tensor x);
  /// On the last stage: the mean of what next [batch, time] costs, without places that are -100.
  Task<Tensor> loss(Tensor logits, Tensor next);
  /// Logits of tokens that belong to several texts, each behind those that it has kept: ids and positions
  /// int64 [1, tokens]; `last` int64 [texts]: the places whose logits are wanted -> [texts, vocab_size],
  /// whole.
  Task<Tensor> next(Tensor ids, Tensor positions, Tensor last, Past* past);
  /// Does so of a whole one, at once.
  Tensor next_alone(const Tensor& ids, const Tensor& positions, const Tensor& last, Past* past);
  /// The device of its parameters.
  Device device() const;

  /// Gives each layer adapters, and freezes everything else. `invalid` if it has some, and as check().
  void adapt(const LoraOptions& options);
  /// Takes the adapters away, and trains everything again. With `merge` the weights do from now on what both
  /// did.
  void drop_adapters(bool merge);

  void members(nn::Members& m) override;
  void reset(Generator& generator) override;
  std::string str() const override;
  const DecoderOptions& options() const& { return options_; }
  DecoderOptions options() && { return std::move(options_); }
  /// The ranks that the layers are cut over; without members: none.
  const Group& ranks() const& { return tp_; }
  Group ranks() && { return std::move(tp_); }
  bool first() const { return embed_tokens.has_value(); }
  bool last() const { return norm.has_value(); }

  std::optional<parallel::Sharded<tp::VocabularyEmbedding>> embed_tokens;
  std::optional<nn::Embedding> embed_positions;              ///< GPT-2's
  std::map<size_t, parallel::Sharded<DecoderLayer>> layers;  ///< this stage's, by number
  std::optional<DecoderNorm> norm;
  std::optional<parallel::Sharded<tp::Head>> lm_head;

 private:
  void make(const DecoderOptions& options, const parallel::StageLayers& own);
  DecoderPass pass_of(const Tensor& positions) const;
  Tensor embedded(const Tensor& sum, const Tensor& positions) const;
  Tensor capped(const Tensor& logits) const;
  Tensor hidden(const Tensor& ids, const Tensor& positions, Past* past);

  DecoderOptions options_;
  Group tp_;
  bool whole_ = true;
};

/// What PipelineOptions::tied is for a model that ties its last layer to the table of tokens, in so many
/// stages; empty if it does not, and for one stage.
std::vector<std::vector<parallel::StageParameter>> tied_stages(const DecoderOptions& options, size_t stages);

}  // namespace troupe::llm
