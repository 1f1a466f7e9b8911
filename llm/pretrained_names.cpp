#include "llm/pretrained_names.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace troupe::llm {

namespace {

// GPT-2's names of what is inside a layer.
std::optional<FilePlace> inside_gpt2(const std::string& layer, const std::string& name) {
  static constexpr std::array<std::pair<const char*, int>, 3> kTogether{
      {{"self_attn.q_proj.", 0}, {"self_attn.k_proj.", 1}, {"self_attn.v_proj.", 2}}};
  for (const auto& [ours, part] : kTogether)
    if (name.starts_with(ours)) {
      const std::string kind = name.substr(std::string(ours).size());
      return FilePlace{layer + "attn.c_attn." + kind, kind == "weight", part, 3};
    }
  static constexpr std::array<std::pair<const char*, const char*>, 3> kLinear{
      {{"self_attn.o_proj.", "attn.c_proj."},
       {"mlp.up_proj.", "mlp.c_fc."},
       {"mlp.down_proj.", "mlp.c_proj."}}};
  for (const auto& [ours, theirs] : kLinear)
    if (name.starts_with(ours)) {
      const std::string kind = name.substr(std::string(ours).size());
      return FilePlace{layer + theirs + kind, kind == "weight"};
    }
  static constexpr std::array<std::pair<const char*, const char*>, 2> kNorms{
      {{"input_layernorm.", "ln_1."}, {"post_attention_layernorm.", "ln_2."}}};
  for (const auto& [ours, theirs] : kNorms)
    if (name.starts_with(ours)) return FilePlace{layer + theirs + name.substr(std::string(ours).size())};
  return {};
}

std::optional<FilePlace> in_gpt2(const std::string& name) {
  if (name == "model.embed_tokens.weight") return FilePlace{"transformer.wte.weight"};
  if (name == "model.embed_positions.weight") return FilePlace{"transformer.wpe.weight"};
  if (name.starts_with("model.norm.")) return FilePlace{"transformer.ln_f." + name.substr(11)};
  if (name == "lm_head.weight") return FilePlace{name};
  const std::string start = "model.layers.";
  const size_t dot = name.find('.', start.size());
  if (!name.starts_with(start) || dot == std::string::npos) return {};
  return inside_gpt2("transformer.h." + name.substr(start.size(), dot + 1 - start.size()),
                     name.substr(dot + 1));
}

}  // namespace

std::optional<FilePlace> file_place(const DecoderOptions& options, const std::string& name) {
  if (name.find(".lora_") != std::string::npos) return {};
  if (options.tie_word_embeddings && name == "lm_head.weight")
    return file_place(options, "model.embed_tokens.weight");
  return options.model_type == "gpt2" ? in_gpt2(name) : FilePlace{name};
}

std::string base_prefix(const DecoderOptions& options) {
  return options.model_type == "gpt2" ? "transformer." : "model.";
}

std::vector<std::string> parameter_names(const DecoderOptions& o) {
  std::vector<std::string> names{"model.embed_tokens.weight"};
  if (!o.rotary) names.push_back("model.embed_positions.weight");
  const auto add = [&](const std::string& module, bool bias) {
    names.push_back(module + ".weight");
    if (bias) names.push_back(module + ".bias");
  };
  const bool layer_norm = o.norm == "layer";
  for (int64_t i = 0; i < o.num_hidden_layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    for (const char* part : {"q_proj", "k_proj", "v_proj"})
      add(layer + "self_attn." + part, o.attention_bias);
    add(layer + "self_attn.o_proj", o.output_bias);
    if (o.qk_norm) add(layer + "self_attn.q_norm", layer_norm), add(layer + "self_attn.k_norm", layer_norm);
    if (o.gated) add(layer + "mlp.gate_proj", o.mlp_bias);
    add(layer + "mlp.up_proj", o.mlp_bias), add(layer + "mlp.down_proj", o.mlp_bias);
    add(layer + "input_layernorm", layer_norm), add(layer + "post_attention_layernorm", layer_norm);
    if (!o.post_norms) continue;
    add(layer + "pre_feedforward_layernorm", layer_norm),
        add(layer + "post_feedforward_layernorm", layer_norm);
  }
  add("model.norm", layer_norm), add("lm_head", false);
  return names;
}

bool is_no_parameter(const DecoderOptions& options, const std::string& name) {
  return name.ends_with("rotary_emb.inv_freq") || name.ends_with(".attn.bias") ||
         name.ends_with(".attn.masked_bias") || (options.tie_word_embeddings && name == "lm_head.weight");
}

}  // namespace troupe::llm
