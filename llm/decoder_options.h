// What describes a decoder: the language models of GPT-2's and Llama's descent.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor/dtype.h"
#include "llm/lora_options.h"
#include "ops/rotary.h"

namespace troupe::llm {

/// A decoder's shape, with the names of Hugging Face's configurations. The defaults are Llama's;
/// from_config() fills in what a family does otherwise.
struct DecoderOptions {
  std::string model_type = "llama";  ///< by whose names its files go: one of model_types()
  int64_t vocab_size = 32000;
  int64_t hidden_size = 4096;
  int64_t intermediate_size = 11008;
  int64_t num_hidden_layers = 32;
  int64_t num_attention_heads = 32;
  int64_t num_key_value_heads = 0;  ///< heads of keys and values, each for several queries; 0: as many
  int64_t head_dim = 0;             ///< 0: hidden_size / num_attention_heads
  int64_t max_position_embeddings = 2048;

  std::string norm = "rms";  ///< or "layer"
  double norm_eps = 1e-6;
  bool norm_adds_one = false;       ///< Gemma's norms multiply by 1 + weight
  bool post_norms = false;          ///< also what attention and the feed-forward layer give (Gemma 2 and 3)
  bool qk_norm = false;             ///< each head's query and key (Qwen 3, Gemma 3)
  std::string hidden_act = "silu";  ///< or "gelu", "gelu_tanh", "relu"
  bool gated = true;                ///< act(gate(x)) * up(x) (SwiGLU, GeGLU), not act(up(x))
  bool attention_bias = false;      ///< of queries, keys and values
  bool output_bias = false;         ///< of attention's result
  bool mlp_bias = false;
  bool tie_word_embeddings = false;  ///< the last layer is the table of tokens

  bool rotary = true;                                 ///< else positions have a table that is learned (GPT-2)
  ops::RotaryOptions rope;                            ///< of all layers, or of those that see everything
  std::optional<ops::RotaryOptions> local_rope = {};  ///< of layers with a window (Gemma 3)
  int64_t sliding_window = 0;       ///< a position sees itself and so many less one before it; 0: all
  std::vector<bool> windowed = {};  ///< which layers have the window; empty: all
  double query_scale = 0;           ///< of scores; 0: 1 / sqrt(head_dim)
  double attention_softcap = 0;     ///< scores are c tanh(score / c) (Gemma 2); 0: as they are
  double logit_softcap = 0;         ///< the same of the result
  double embedding_scale = 1;       ///< Gemma: sqrt(hidden_size)

  double initializer_range = 0.02;  ///< deviation of weights at the start
  DType dtype = float32;
  /// Adapters, which alone are trained if there are some: everything else is frozen.
  std::optional<LoraOptions> lora = {};

  int64_t key_value_heads() const { return num_key_value_heads ? num_key_value_heads : num_attention_heads; }
  int64_t head_width() const { return head_dim ? head_dim : hidden_size / num_attention_heads; }
  /// The window of a layer; 0: it sees everything.
  int64_t window_of(int64_t layer) const;
};

/// What from_config() knows: "gemma", "gemma2", "gemma3_text", "gpt2", "llama", "mistral", "qwen2", "qwen3".
const std::vector<std::string>& model_types();

/// `invalid`, naming the field, unless a decoder can be made of them.
void check(const DecoderOptions& options);

}  // namespace troupe::llm
