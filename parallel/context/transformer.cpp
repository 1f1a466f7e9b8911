#include "parallel/context/transformer.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "ops/ops.h"
#include "parallel/tensor/convert.h"

namespace troupe::cp {

TransformerEncoderLayer::TransformerEncoderLayer(Group group, int64_t width, int64_t heads,
                                                 const Options& options, Way way)
    : group_(std::move(group)),
      width_(width),
      heads_(heads),
      options_(options),
      way_(way),
      whole_(width, heads, options) {
  if (options.dropout != 0)
    throw_invalid(
        fmt::format("[context transformer] dropout is {}, and weights of attention over a cut sequence "
                    "are not thinned: give .dropout = 0",
                    options.dropout));
}

std::string TransformerEncoderLayer::str() const {
  return fmt::format("cp::TransformerEncoderLayer({}, {} heads)", width_, heads_);
}

// Each rank uses the parameter for its own positions.
Tensor TransformerEncoderLayer::copy(const Tensor& parameter, const char* name) const {
  if (!parameter.defined() || group_.size() <= 1) return parameter;
  return tp::enter(parameter, group_, str() + "." + name);
}

Tensor TransformerEncoderLayer::linear(const Tensor& x, const nn::Linear& layer, const char* name) const {
  return ops::linear(x, copy(layer.weight, name), copy(layer.bias, name));
}

Tensor TransformerEncoderLayer::normed(const Tensor& x, const nn::LayerNorm& norm, const char* name) const {
  return ops::layer_norm(x, {width_}, copy(norm.weight, name), copy(norm.bias, name),
                         options_.layer_norm_eps);
}

Task<Tensor> TransformerEncoderLayer::attend(Tensor x, Sequence sequence) {
  const Tensor weight = copy(whole_.self_attn.in_proj_weight, "in_proj_weight"),
               bias = copy(whole_.self_attn.in_proj_bias, "in_proj_bias");
  const Tensor projected =
      ops::reshape(ops::linear(x, weight, bias), {x.size(0), x.size(1), 3, heads_, width_ / heads_});
  const Tensor parts = ops::permute(projected, {2, 0, 3, 1, 4});
  AttentionOptions options{.way = way_, .causal = options_.causal, .layer = str()};
  Task<Tensor> attending =
      attention(ops::select(parts, 0, 0), ops::select(parts, 0, 1), ops::select(parts, 0, 2), group_,
                std::move(sequence), std::move(options));
  const Tensor mixed = co_await std::move(attending);
  const Tensor together = ops::reshape(ops::transpose(mixed, 1, 2), {x.size(0), x.size(1), width_});
  co_return linear(together, whole_.self_attn.out_proj, "out_proj");
}

Tensor TransformerEncoderLayer::feed(const Tensor& x) const {
  const Tensor wide = linear(x, whole_.linear1, "linear1");
  return linear(options_.activation == "gelu" ? ops::gelu(wide) : ops::relu(wide), whole_.linear2, "linear2");
}

Task<Tensor> TransformerEncoderLayer::operator()(Tensor x, Sequence sequence) {
  if (!x.defined() || x.dim() != 3 || x.size(2) != width_)
    throw_invalid(fmt::format("[context transformer] the input is {}, expected [batch, some of time, {}]",
                              x.defined() ? x.summary() : "undefined", width_));
  const bool first = options_.norm_first;
  Task<Tensor> attending = attend(first ? normed(x, whole_.norm1, "norm1") : x, std::move(sequence));
  const Tensor seen = co_await std::move(attending);
  x = ops::add(x, seen);
  if (!first) x = normed(x, whole_.norm1, "norm1");
  x = ops::add(x, feed(first ? normed(x, whole_.norm2, "norm2") : x));
  co_return first ? x : normed(x, whole_.norm2, "norm2");
}

}  // namespace troupe::cp
