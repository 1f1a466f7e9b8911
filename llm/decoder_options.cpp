#include "llm/decoder_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/error.h"

namespace troupe::llm {

namespace {

void one_of(const char* field, const std::string& value, const std::vector<std::string>& known) {
  if (std::ranges::find(known, value) == known.end())
    throw_invalid(
        fmt::format("[decoder] {} is \"{}\", expected one of {}", field, value, fmt::join(known, ", ")));
}

}  // namespace

const std::vector<std::string>& model_types() {
  static const std::vector<std::string> types{"gemma", "gemma2",  "gemma3_text", "gpt2",
                                              "llama", "mistral", "qwen2",       "qwen3"};
  return types;
}

const std::vector<std::string>& projection_names() {
  static const std::vector<std::string> names{"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                              "gate_proj", "up_proj", "down_proj"};
  return names;
}

void check(const LoraOptions& o) {
  if (o.r < 1) throw_invalid(fmt::format("[lora] r is {}, expected at least 1", o.r));
  if (o.lora_dropout < 0 || o.lora_dropout >= 1)
    throw_invalid(fmt::format("[lora] lora_dropout is {}, expected a number in [0, 1)", o.lora_dropout));
  if (o.target_modules.empty()) throw_invalid("[lora] target_modules is empty: name at least one projection");
  for (const std::string& name : o.target_modules)
    if (std::ranges::find(projection_names(), name) == projection_names().end())
      throw_invalid(fmt::format("[lora] target_modules has \"{}\", expected some of {}", name,
                                fmt::join(projection_names(), ", ")));
}

int64_t DecoderOptions::window_of(int64_t layer) const {
  const bool has = windowed.empty() || windowed[static_cast<size_t>(layer)];
  return has ? sliding_window : 0;
}

void check(const DecoderOptions& o) {
  one_of("model_type", o.model_type, model_types());
  one_of("norm", o.norm, {"rms", "layer"});
  one_of("hidden_act", o.hidden_act, {"silu", "gelu", "gelu_tanh", "relu"});
  const std::array<std::pair<const char*, int64_t>, 7> sizes{
      {{"vocab_size", o.vocab_size},
       {"hidden_size", o.hidden_size},
       {"intermediate_size", o.intermediate_size},
       {"num_hidden_layers", o.num_hidden_layers},
       {"num_attention_heads", o.num_attention_heads},
       {"num_key_value_heads", o.key_value_heads()},
       {"max_position_embeddings", o.max_position_embeddings}}};
  for (const auto& [field, value] : sizes)
    if (value < 1) throw_invalid(fmt::format("[decoder] {} is {}, expected at least 1", field, value));
  if (o.num_attention_heads % o.key_value_heads())
    throw_invalid(
        fmt::format("[decoder] num_key_value_heads is {}, which does not divide num_attention_heads, {}",
                    o.key_value_heads(), o.num_attention_heads));
  if (!o.head_dim && o.hidden_size % o.num_attention_heads)
    throw_invalid(fmt::format(
        "[decoder] num_attention_heads is {}, which does not divide hidden_size, {}: give head_dim",
        o.num_attention_heads, o.hidden_size));
  if (o.rotary && (o.head_width() < 2 || o.head_width() % 2))
    throw_invalid(fmt::format("[decoder] head_dim is {}, expected an even number for rotary embeddings",
                              o.head_width()));
  if (o.sliding_window < 0)
    throw_invalid(fmt::format("[decoder] sliding_window is {}, expected at least 0", o.sliding_window));
  if (!o.windowed.empty() && static_cast<int64_t>(o.windowed.size()) != o.num_hidden_layers)
    throw_invalid(fmt::format("[decoder] layer_types names {} layers, expected num_hidden_layers, {}",
                              o.windowed.size(), o.num_hidden_layers));
  if (o.lora) check(*o.lora);
  if (!is_floating(o.dtype))
    throw_invalid(fmt::format("[decoder] dtype is {}, expected a floating one", name(o.dtype)));
}

}  // namespace troupe::llm
