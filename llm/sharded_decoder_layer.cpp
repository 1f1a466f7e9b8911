#include "llm/sharded_decoder_layer.h"

namespace troupe::parallel {

Sharded<llm::DecoderLayer>::Sharded(const Group& group, const llm::DecoderOptions& options, int64_t number)
    : DecoderLayer(group, options, number),
      attend_("self_attn", {{"input_layernorm", &input_layernorm}, {"self_attn", &self_attn}}),
      feed_(
          "mlp",
          {pre_feedforward_layernorm
               ? std::pair<std::string, nn::Module*>("pre_feedforward_layernorm", &*pre_feedforward_layernorm)
               : std::pair<std::string, nn::Module*>("post_attention_layernorm", &post_attention_layernorm),
           {"mlp", &mlp}}) {}

Task<Tensor> Sharded<llm::DecoderLayer>::operator()(Tensor x, llm::DecoderPass pass) {
  const auto attending = attend_.sum_of([this, x, pass] { return attend(x, pass); });
  Tensor sum = co_await attending;
  x = attended(x, sum);
  const auto feeding = feed_.sum_of([this, x] { return feed(x); });
  sum = co_await feeding;
  co_return fed(x, sum);
}

}  // namespace troupe::parallel
