#include "parallel/sharded/sharded_encoder_layer.h"

namespace troupe::parallel {

namespace {

MemberPart::Modules with_norm(MemberPart::Modules modules, const std::string& name, nn::LayerNorm& norm,
                              bool first) {
  if (first) modules.emplace_back(name, &norm);
  return modules;
}

}  // namespace

Sharded<tp::TransformerEncoderLayer>::Sharded(Group group, int64_t width, int64_t heads,
                                              const Options& options)
    : Sharded(TransformerEncoderLayer(std::move(group), width, heads, options)) {}

Sharded<tp::TransformerEncoderLayer>::Sharded(const Sharded& o)
    : Sharded(static_cast<const TransformerEncoderLayer&>(o)) {
  MemberPart::refuse_cut(o.attend_), MemberPart::refuse_cut(o.feed_);
}

Sharded<tp::TransformerEncoderLayer>::Sharded(const TransformerEncoderLayer& layer)
    : TransformerEncoderLayer(layer),
      attend_("self_attn", with_norm({{"self_attn", &self_attn}}, "norm1", norm1, norm_first())),
      feed_("feed_forward",
            with_norm({{"linear1", &linear1}, {"linear2", &linear2}}, "norm2", norm2, norm_first())) {}

Task<Tensor> Sharded<tp::TransformerEncoderLayer>::operator()(Tensor x) {
  const auto attending = attend_.sum_of([this, x] { return attend(x); });
  Tensor sum = co_await attending;
  x = attended(x, sum);
  const auto feeding = feed_.sum_of([this, x] { return feed(x); });
  sum = co_await feeding;
  co_return fed(x, sum);
}

}  // namespace troupe::parallel
