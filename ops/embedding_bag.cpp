#include "ops/embedding_bag.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/gradient_rules.h"
#include "ops/index.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

Tensors bags_of(const Call& c) {
  const Tensor &ids = c.in[0], &weight = c.in[1];
  require_int64(c, ids, "ids");
  require_int64(c, c.in[2], "offsets");
  require_floating(c, weight);
  if (weight.dim() != 2) reject(c, "weight must be [rows, d], got " + weight.shape().str());
  if (ids.dim() != 1 || c.in[2].dim() != 1)
    reject(c, fmt::format("ids and offsets must be 1-d, got {} and {}", ids.shape().str(),
                          c.in[2].shape().str()));
  const std::string& mode = c.attrs.text("mode");
  if (mode != "sum" && mode != "mean") reject(c, fmt::format("mode is \"{}\", expected sum or mean", mode));
  const Tensor offsets = c.in[2].data_on(troupe::cpu).contiguous_data();  // they decide the results' places
  const int64_t *start = offsets.data<int64_t>(), bags = offsets.numel(), n = ids.numel();
  if (bags == 0 && n > 0) reject(c, fmt::format("{} ids, but no offsets: offsets must begin with 0", n));
  const Tensor bag = empty({n}, int64), scale = empty({bags, 1}, weight.dtype());
  for (int64_t i = 0; i < bags; ++i) {
    const int64_t end = i + 1 < bags ? start[i + 1] : n;
    if (i == 0 && start[0] != 0) reject(c, fmt::format("offsets must begin with 0, got {}", start[0]));
    if (end < start[i] || end > n)
      reject(c, fmt::format("bag {} goes from {} to {}: offsets must not fall nor exceed the {} ids", i,
                            start[i], end, n));
    std::fill(bag.data<int64_t>() + start[i], bag.data<int64_t>() + end, i);
    visit_dtype(weight.dtype(), [&](auto zero) {
      using T = decltype(zero);
      scale.data<T>()[i] = static_cast<T>(1 / static_cast<double>(std::max<int64_t>(end - start[i], 1)));
    });
  }
  const Tensor sums =
      apply1(kIndexSelectGrad, {embedding(ids, weight), bag.data_on(ids.device())}, {{"dim", 0}, {"size", bags}});
  return {mode == "sum" ? sums : mul(sums, scale.data_on(weight.device()))};
}

}  // namespace

const Op kEmbeddingBag{.name = "embedding_bag",
                       .inputs = "input weight offsets",
                       .text = "Sums or means of the rows of weight that bags of numbers name.",
                       .internal = true,
                       .attrs = {{"mode", "mean"}},
                       .compose = bags_of,
                       .samples = []() -> std::vector<Sample> {
                         const Tensor ids = tensor({1, 3, 3, 0, 2, 1});
                         const Tensor offsets = tensor({0, 2, 2, 5});
                         const Tensor none = empty({0}, int64);
                         return {{{ids, sample({4, 3}), offsets}, {{"mode", "sum"}}},
                                 {{ids, sample({4, 3}), offsets}},
                                 {{none, sample({4, 3}), tensor({0, 0})}},
                                 {{none, sample({4, 3}), none}}};
                       }};

Tensor embedding_bag(const Tensor& ids, const Tensor& weight, const Tensor& offsets,
                     const std::string& mode) {
  if (offsets.defined() || !ids.defined())
    return apply1(kEmbeddingBag, {ids, weight, offsets}, {{"mode", mode}});
  if (ids.dim() != 2)
    throw_invalid("[embedding_bag] without offsets ids are [bags, n], got " + ids.summary());
  const Tensor flat = reshape(ids, {ids.numel()});
  const Tensor starts = mul(arange(ids.size(0), ids.device()), ids.size(1));
  return apply1(kEmbeddingBag, {flat, weight, starts}, {{"mode", mode}});
}

Tensor embedding(const Tensor& ids, const Tensor& weight, std::optional<int64_t> padding_idx) {
  const Tensor y = embedding(ids, weight);
  if (!padding_idx) return y;
  const int64_t rows = weight.size(0), at = *padding_idx < 0 ? *padding_idx + rows : *padding_idx;
  if (at < 0 || at >= rows)
    throw_invalid(fmt::format("[embedding] padding_idx must be in [-{0}, {0}), got {1}", rows, *padding_idx));
  return y.requires_grad() ? where(unsqueeze(eq(ids, at), -1), y.detach(), y) : y;
}

}  // namespace troupe::ops
