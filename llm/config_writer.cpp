// A config.json as transformers reads it, of versions before 5 and since.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "llm/config.h"

namespace troupe::llm {

namespace {

using Json = nlohmann::json;

Json rope_json(const ops::RotaryOptions& o) {
  Json out{{"rope_type", o.scaling}, {"rope_theta", o.theta}};
  if (o.scaling == "default") return out;
  out["factor"] = o.factor;
  if (o.scaling == "linear") return out;
  out["original_max_position_embeddings"] = o.original_max_position_embeddings;
  if (o.scaling == "yarn") {
    out["beta_fast"] = o.beta_fast, out["beta_slow"] = o.beta_slow;
    if (o.attention_factor != 0) out["attention_factor"] = o.attention_factor;
  }
  if (o.scaling == "llama3")
    out["low_freq_factor"] = o.low_freq_factor, out["high_freq_factor"] = o.high_freq_factor;
  return out;
}

std::string act_name(const std::string& act) { return act == "gelu_tanh" ? "gelu_pytorch_tanh" : act; }

std::string class_of(const std::string& type) {
  if (type == "gpt2") return "GPT2LMHeadModel";
  if (type == "gemma3_text") return "Gemma3ForCausalLM";
  std::string name = type;
  name[0] = static_cast<char>(name[0] - 'a' + 'A');
  return name + "ForCausalLM";
}

void add_gpt2(Json& j, const DecoderOptions& o) {
  j["n_embd"] = o.hidden_size, j["n_layer"] = o.num_hidden_layers, j["n_head"] = o.num_attention_heads;
  j["n_positions"] = o.max_position_embeddings, j["n_inner"] = o.intermediate_size;
  j["layer_norm_epsilon"] = o.norm_eps;
  j["activation_function"] = o.hidden_act == "gelu_tanh" ? "gelu_new" : o.hidden_act;
}

void add_windows(Json& j, const DecoderOptions& o) {
  const bool qwen = o.model_type.starts_with("qwen");
  if (qwen) j["use_sliding_window"] = o.sliding_window > 0;
  if (o.model_type == "llama" || o.model_type == "gemma") return;
  j["sliding_window"] = o.sliding_window ? Json(o.sliding_window) : Json();
  if (o.windowed.empty()) return;
  j["layer_types"] = Json::array();
  for (const bool w : o.windowed) j["layer_types"].push_back(w ? "sliding_attention" : "full_attention");
}

void add_gemma(Json& j, const DecoderOptions& o) {
  j["hidden_activation"] = act_name(o.hidden_act);
  if (o.model_type == "gemma") return;
  j["query_pre_attn_scalar"] = std::llround(1 / (o.query_scale * o.query_scale));
  j["attn_logit_softcapping"] = o.attention_softcap > 0 ? Json(o.attention_softcap) : Json();
  j["final_logit_softcapping"] = o.logit_softcap > 0 ? Json(o.logit_softcap) : Json();
}

void add_llama(Json& j, const DecoderOptions& o) {
  j["hidden_size"] = o.hidden_size, j["intermediate_size"] = o.intermediate_size;
  j["num_hidden_layers"] = o.num_hidden_layers, j["num_attention_heads"] = o.num_attention_heads;
  j["num_key_value_heads"] = o.key_value_heads(), j["head_dim"] = o.head_width();
  j["max_position_embeddings"] = o.max_position_embeddings, j["rms_norm_eps"] = o.norm_eps;
  j["hidden_act"] = act_name(o.hidden_act);
  j["attention_bias"] = o.attention_bias, j["mlp_bias"] = o.mlp_bias;
  // Both ways of saying it: versions of transformers before 5 know the second alone.
  if (o.local_rope) {
    j["rope_parameters"] = {{"full_attention", rope_json(o.rope)},
                            {"sliding_attention", rope_json(*o.local_rope)}};
    j["rope_local_base_freq"] = o.local_rope->theta;
  } else {
    j["rope_parameters"] = rope_json(o.rope);
  }
  j["rope_theta"] = o.rope.theta;
  if (o.rope.scaling != "default") j["rope_scaling"] = rope_json(o.rope);
  add_windows(j, o);
  if (o.model_type.starts_with("gemma")) add_gemma(j, o);
}

}  // namespace

std::string config_json(const DecoderOptions& o) {
  Json j{{"architectures", Json::array({class_of(o.model_type)})},
         {"model_type", o.model_type},
         {"vocab_size", o.vocab_size},
         {"tie_word_embeddings", o.tie_word_embeddings},
         {"initializer_range", o.initializer_range},
         {"dtype", name(o.dtype)},
         {"torch_dtype", name(o.dtype)}};
  if (o.model_type == "gpt2")
    add_gpt2(j, o);
  else
    add_llama(j, o);
  return j.dump(2) + "\n";
}

}  // namespace troupe::llm
