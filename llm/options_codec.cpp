#include "llm/options_codec.h"

#include <tuple>
#include <utility>

#include "core/codec/plain_struct.h"

namespace troupe {

namespace {

// All fields, in two lists.
auto sizes_in(llm::DecoderOptions& o) {
  return std::tie(o.model_type, o.vocab_size, o.hidden_size, o.intermediate_size, o.num_hidden_layers,
                  o.num_attention_heads, o.num_key_value_heads, o.head_dim, o.max_position_embeddings,
                  o.rotary, o.rope, o.local_rope, o.sliding_window, o.windowed, o.dtype, o.lora);
}
auto forms_in(llm::DecoderOptions& o) {
  return std::tie(o.norm, o.norm_eps, o.norm_adds_one, o.post_norms, o.qk_norm, o.hidden_act, o.gated,
                  o.attention_bias, o.output_bias, o.mlp_bias, o.tie_word_embeddings, o.query_scale,
                  o.attention_softcap, o.logit_softcap, o.embedding_scale, o.initializer_range);
}

template <class... T>
std::tuple<T...> values(const std::tuple<T&...>& fields) {
  return fields;
}
template <class... T>
void put(const std::tuple<T&...>& fields, Value v) {
  auto to = fields;
  to = Codec<std::tuple<T...>>::from(std::move(v));
}
template <class... T>
Value list(const std::tuple<T&...>& fields) {
  return Codec<std::tuple<T...>>::to(values(fields));
}

}  // namespace

Value Codec<llm::DecoderOptions>::to(llm::DecoderOptions o) {
  return ValueList{list(sizes_in(o)), list(forms_in(o))};
}

llm::DecoderOptions Codec<llm::DecoderOptions>::from(Value v) {
  auto [sizes, forms] = Codec<std::pair<Value, Value>>::from(std::move(v));
  llm::DecoderOptions o;
  put(sizes_in(o), std::move(sizes)), put(forms_in(o), std::move(forms));
  return o;
}

}  // namespace troupe
