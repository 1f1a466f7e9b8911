#include "llm/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/base/error.h"
#include "data/formats/json.h"
#include "data/formats/json_fields.h"

namespace troupe::llm {

namespace {

using datasets::JsonFields;

bool is_gemma(const std::string& type) { return type.starts_with("gemma"); }

DType dtype_of(const JsonFields& f) {
  const std::string dtype = f.text(f.has("dtype") ? "dtype" : "torch_dtype", "float32");
  for (const DType t : {float32, float64, bfloat16, float16})
    if (dtype == name(t)) return t;
  f.refuse(fmt::format("dtype is \"{}\", expected one of float32, float64, bfloat16, float16", dtype));
}

std::string act_of(const JsonFields& f, const std::string& field, const std::string& otherwise) {
  const std::string act = f.text(field, otherwise);
  if (act == "silu" || act == "swish") return "silu";
  if (act == "gelu_new" || act == "gelu_pytorch_tanh" || act == "gelu_fast") return "gelu_tanh";
  if (act == "gelu" || act == "relu") return act;
  f.refuse(
      fmt::format("{} is \"{}\", expected one of silu, gelu, gelu_new, gelu_pytorch_tanh, relu", field, act));
}

// Each field that may change the angles is known here, or the file is refused.
ops::RotaryOptions rope_of(const JsonFields& f, double theta, int64_t trained) {
  ops::RotaryOptions o;
  const std::string kind = f.text(f.has("rope_type") ? "rope_type" : "type", "default");
  if (kind != "default" && kind != "linear" && kind != "dynamic" && kind != "yarn" && kind != "llama3")
    f.refuse(
        fmt::format("rope_type is \"{}\", expected one of default, linear, dynamic, yarn, llama3", kind));
  const std::vector<std::string> known{
      "rope_type", "type",      "rope_theta",       "factor",          "original_max_position_embeddings",
      "beta_fast", "beta_slow", "attention_factor", "low_freq_factor", "high_freq_factor"};
  for (const auto& [field, value] : f.all()) {
    const auto* number = value.get_if<double>();
    if (field == "partial_rotary_factor" && number && *number == 1) continue;
    const auto* truth = value.get_if<bool>();
    if (field == "truncate" && truth && *truth) continue;
    if (!value.is_null() && std::ranges::find(known, field) == known.end())
      f.refuse(fmt::format("{} is not known here, and may change the embedding of positions", field));
  }
  o.scaling = kind, o.theta = f.number("rope_theta", theta);
  if (kind == "default") return o;
  o.factor = f.number("factor");
  if (kind == "linear") return o;
  o.original_max_position_embeddings = f.whole("original_max_position_embeddings", trained);
  o.beta_fast = f.number("beta_fast", o.beta_fast), o.beta_slow = f.number("beta_slow", o.beta_slow);
  o.attention_factor = f.number("attention_factor", 0);
  if (kind != "llama3") return o;
  o.low_freq_factor = f.number("low_freq_factor"), o.high_freq_factor = f.number("high_freq_factor");
  return o;
}

// Reads what version 5 of transformers writes, then what those before did.
void read_rope(DecoderOptions& o, const JsonFields& f, double theta) {
  const int64_t trained = o.max_position_embeddings;
  theta = f.number("rope_theta", theta);
  if (f.has("rope_parameters")) {
    const JsonFields rope = f.inner("rope_parameters");
    if (rope.has("full_attention")) {
      o.rope = rope_of(rope.inner("full_attention"), theta, trained);
      if (rope.has("sliding_attention"))
        o.local_rope = rope_of(rope.inner("sliding_attention"), 10000, trained);
    } else {
      o.rope = rope_of(rope, theta, trained);
    }
    return;
  }
  o.rope.theta = theta;
  if (f.has("rope_scaling")) o.rope = rope_of(f.inner("rope_scaling"), theta, trained);
  if (o.model_type == "gemma3_text")
    o.local_rope = ops::RotaryOptions{.theta = f.number("rope_local_base_freq", 10000)};
}

void read_windows(DecoderOptions& o, const JsonFields& f) {
  const std::string& type = o.model_type;
  const bool qwen = type == "qwen2" || type == "qwen3";
  if (qwen && !f.truth("use_sliding_window", false)) return;
  if (type == "llama" || type == "gemma") return;
  // These families have a window where the field is missing, and none where it is null.
  o.sliding_window = f.all().contains("sliding_window") ? f.whole("sliding_window", 0) : 4096;
  if (!o.sliding_window) return;
  if (f.has("layer_types")) {
    for (const std::string& kind : f.texts("layer_types")) {
      if (kind != "sliding_attention" && kind != "full_attention")
        f.refuse(fmt::format("layer_types has \"{}\", expected sliding_attention or full_attention", kind));
      o.windowed.push_back(kind == "sliding_attention");
    }
  } else if (type == "gemma2" || type == "gemma3_text") {
    const int64_t every =
        type == "gemma2" ? 2 : f.whole("sliding_window_pattern", f.whole("_sliding_window_pattern", 6));
    for (int64_t i = 0; i < o.num_hidden_layers; ++i) o.windowed.push_back((i + 1) % every != 0);
  } else if (qwen) {
    const int64_t from = f.whole("max_window_layers", 28);
    for (int64_t i = 0; i < o.num_hidden_layers; ++i) o.windowed.push_back(i >= from);
  }
}

void read_gemma(DecoderOptions& o, const JsonFields& f) {
  o.norm_adds_one = true;
  o.embedding_scale = std::sqrt(static_cast<double>(o.hidden_size));
  o.head_dim = f.whole("head_dim", 256);
  o.hidden_act =
      act_of(f, f.has("hidden_activation") ? "hidden_activation" : "hidden_act", "gelu_pytorch_tanh");
  if (o.model_type == "gemma") return;
  o.post_norms = true;
  o.query_scale = 1 / std::sqrt(f.number("query_pre_attn_scalar", 256));
  o.qk_norm = o.model_type == "gemma3_text";
  const bool two = o.model_type == "gemma2";
  const auto cap = [&](const char* field, double otherwise) {
    return f.all().contains(field) ? f.number(field, 0) : otherwise;  // null: none
  };
  o.attention_softcap = cap("attn_logit_softcapping", two ? 50 : 0);
  o.logit_softcap = cap("final_logit_softcapping", two ? 30 : 0);
  if (f.truth("use_bidirectional_attention", false))
    f.refuse("use_bidirectional_attention is true, expected a decoder");
}

DecoderOptions llama_like(const JsonFields& f, const std::string& type) {
  DecoderOptions o{.model_type = type};
  const bool gemma = is_gemma(type);
  o.vocab_size = f.whole("vocab_size"), o.hidden_size = f.whole("hidden_size");
  o.intermediate_size = f.whole("intermediate_size"), o.num_hidden_layers = f.whole("num_hidden_layers");
  o.num_attention_heads = f.whole("num_attention_heads");
  o.num_key_value_heads = f.whole("num_key_value_heads", o.num_attention_heads);
  o.head_dim = f.whole("head_dim", type == "qwen3" ? 128 : 0);
  o.max_position_embeddings = f.whole("max_position_embeddings");
  o.norm_eps = f.number("rms_norm_eps", 1e-6);
  o.tie_word_embeddings = f.truth("tie_word_embeddings", gemma);
  o.hidden_act = "silu";
  if (!gemma) o.hidden_act = act_of(f, "hidden_act", "silu");
  o.attention_bias = type == "qwen2" || (type != "mistral" && f.truth("attention_bias", false));
  o.output_bias = type != "qwen2" && o.attention_bias;
  o.mlp_bias = type == "llama" && f.truth("mlp_bias", false);
  o.qk_norm = type == "qwen3";
  read_rope(o, f, type == "gemma3_text" ? 1e6 : 10000);
  read_windows(o, f);
  if (gemma) read_gemma(o, f);
  return o;
}

DecoderOptions gpt2(const JsonFields& f) {
  DecoderOptions o{.model_type = "gpt2"};
  o.vocab_size = f.whole("vocab_size"), o.hidden_size = f.whole("n_embd");
  o.num_hidden_layers = f.whole("n_layer"), o.num_attention_heads = f.whole("n_head");
  o.intermediate_size = f.whole("n_inner", 4 * o.hidden_size);
  o.max_position_embeddings = f.whole("n_positions");
  o.norm = "layer", o.norm_eps = f.number("layer_norm_epsilon", 1e-5);
  o.hidden_act = act_of(f, "activation_function", "gelu_new"), o.gated = false, o.rotary = false;
  o.attention_bias = o.output_bias = o.mlp_bias = true;
  o.tie_word_embeddings = f.truth("tie_word_embeddings", true);
  if (!f.truth("scale_attn_weights", true)) f.refuse("scale_attn_weights is false, expected true");
  if (f.truth("scale_attn_by_inverse_layer_idx", false))
    f.refuse("scale_attn_by_inverse_layer_idx is true, expected false");
  return o;
}

DecoderOptions options_of(const JsonFields& f) {
  const std::string type = f.text("model_type");
  if (std::ranges::find(model_types(), type) == model_types().end()) {
    const std::string near = nearest(type, model_types());
    f.refuse(fmt::format("model_type is \"{}\", expected one of {}{}", type, fmt::join(model_types(), ", "),
                         near.empty() ? "" : ": did you mean " + near + "?"));
  }
  if (f.has("quantization_config"))
    f.refuse("quantization_config is there: expected weights that are not quantized");
  DecoderOptions o = type == "gpt2" ? gpt2(f) : llama_like(f, type);
  o.dtype = dtype_of(f);
  o.initializer_range = f.number("initializer_range", 0.02);
  try {
    check(o);
  } catch (const Error& e) {
    f.refuse(e.message());
  }
  return o;
}

}  // namespace

DecoderOptions parse_config(const std::string& text, const std::string& what) {
  return options_of({datasets::read_json(text, what + ": "), what});
}

DecoderOptions read_config(const std::string& path) {
  const std::filesystem::path given(path);
  std::error_code none;
  const auto file = std::filesystem::is_directory(given, none) ? given / "config.json" : given;
  return options_of(datasets::read_json_fields(file.string(), "llm"));
}

}  // namespace troupe::llm
