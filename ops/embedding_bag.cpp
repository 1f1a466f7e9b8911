#include "ops/embedding_bag.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/cumulative.h"
#include "ops/dispatch/promote.h"
#include "ops/gradient_rules.h"
#include "ops/index.h"
#include "ops/indexing.h"
#include "ops/logic.h"
#include "ops/nonzero.h"
#include "ops/reduce.h"
#include "ops/reshape_ops.h"
#include "ops/scatter.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

void check_weights(const Call& c, const std::string& mode) {
  const Tensor& weights = c.in[3];
  if (mode != "sum")
    reject(c,
           fmt::format("per_sample_weights are for mode \"sum\", got \"{}\": divide the sum, or leave them "
                       "out",
                       mode));
  if (weights.shape() != c.in[0].shape() || weights.dtype() != c.in[1].dtype())
    reject(c, fmt::format("per_sample_weights must be {} {}, as input and weight, got {}",
                          name(c.in[1].dtype()), c.in[0].shape().str(), weights.summary()));
}

// The first of the largest elements that each column of rows [n, d] has in each bag; 0 in an empty one.
Tensor largest_in_bags(const Tensor& rows, const Tensor& bag, int64_t bags) {
  const int64_t n = rows.size(0), d = rows.size(1);
  const TensorOptions whole{int64, rows.device()};
  const Tensor known = rows.detach(), index = expand(unsqueeze(bag, 1), {n, d});
  const Tensor most = scatter_reduce(zeros({bags, d}, known.options()), 0, index, known, "amax", false);
  const Tensor limit = index_select(most, 0, bag);
  const Tensor hit = logical_or(eq(known, limit), logical_and(isnan(known), isnan(limit)));
  const Tensor place = where(hit, expand(unsqueeze(arange(0, n, 1, whole), 1), {n, d}), n);
  const Tensor first = scatter_reduce(full({bags, d}, n, whole), 0, index, place, "amin");
  return gather(cat({rows, zeros({1, d}, rows.options())}), 0, first);
}

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
  if (mode != "sum" && mode != "mean" && mode != "max")
    reject(c, fmt::format("mode is \"{}\", expected sum, mean or max", mode));
  const bool weighted = c.in.size() > 3;
  if (weighted) check_weights(c, mode);
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
  Tensor rows = embedding(ids, weight);
  const Tensor bag_of_each = bag.data_on(ids.device());
  if (mode == "max") return {largest_in_bags(rows, bag_of_each, bags)};
  if (weighted) rows = mul(rows, unsqueeze(c.in[3], 1));
  const Tensor sums = apply1(kIndexSelectGrad, {rows, bag_of_each}, {{"dim", 0}, {"size", bags}});
  return {mode == "sum" ? sums : mul(sums, scale.data_on(weight.device()))};
}

}  // namespace

const Op kEmbeddingBag{.name = "embedding_bag",
                       .inputs = "input weight offsets per_sample_weights",
                       .text = "Sums, means or the largest of the rows of weight that bags of numbers name.",
                       .internal = true,
                       .min_inputs = 3,
                       .attrs = {{"mode", "mean"}},
                       .compose = bags_of,
                       .samples = []() -> std::vector<Sample> {
                         const Tensor ids = tensor({1, 3, 3, 0, 2, 1});
                         const Tensor offsets = tensor({0, 2, 2, 5});
                         const Tensor none = empty({0}, int64);
                         return {{{ids, sample({4, 3}), offsets}, {{"mode", "sum"}}},
                                 {{ids, sample({4, 3}), offsets}},
                                 {{ids, sample({4, 3}), offsets}, {{"mode", "max"}}},
                                 {{ids, sample({4, 3}), offsets, sample({6}, -2, 2, 1)}, {{"mode", "sum"}}},
                                 {{none, sample({4, 3}), tensor({0, 0})}},
                                 {{none, sample({4, 3}), none}}};
                       }};

namespace {

[[noreturn]] void refuse_bags(const std::string& text) { throw_invalid("[embedding_bag] " + text); }

int64_t row_from_start(const char* op, int64_t row, int64_t rows) {
  const int64_t at = row < 0 ? row + rows : row;
  if (at < 0 || at >= rows)
    throw_invalid(fmt::format("[{}] padding_idx must be in [-{}, {}), got {}", op, rows, rows, row));
  return at;
}

// A line of numbers, where each bag begins, and the weight of each number or none.
struct Bags {
  Tensor ids, offsets, weights;
};

// The last offset is where the last bag ends.
void cut_at_last_offset(Bags& b) {
  if (b.offsets.dim() != 1 || b.offsets.dtype() != int64 || b.offsets.numel() == 0)
    refuse_bags("with include_last_offset needs at least one offset, int64 [bags + 1], got " +
                b.offsets.summary());
  const int64_t last = b.offsets.size(0) - 1, end = select(b.offsets, 0, last).item<int64_t>();
  if (b.ids.dim() != 1 || end < 0 || end > b.ids.size(0))
    refuse_bags(fmt::format("the last offset is {}, and the ids are {}", end, b.ids.summary()));
  b.offsets = slice(b.offsets, 0, 0, last);
  b.ids = slice(b.ids, 0, 0, end);
  if (b.weights.defined() && b.weights.dim() == 1) b.weights = slice(b.weights, 0, 0, end);
}

// Without the numbers of that row.
void leave_out_row(Bags& b, int64_t row) {
  const int64_t n = b.ids.numel();
  const Tensor stays = ne(b.ids, row), places = reshape(nonzero(stays), {-1});
  const TensorOptions whole{int64, b.ids.device()};
  const Tensor before = cat({zeros({1}, whole), cumsum(to(stays, int64), 0)});  // of those that stay
  for (const int64_t at : b.offsets.to_vector<int64_t>())
    if (at < 0 || at > n) refuse_bags(fmt::format("offset {} is not in [0, {}], the ids' number", at, n));
  b.offsets = index_select(before, 0, b.offsets);
  b.ids = index_select(b.ids, 0, places);
  if (b.weights.defined()) b.weights = index_select(b.weights, 0, places);
}

}  // namespace

Tensor embedding_bag(const Tensor& ids, const Tensor& weight, const Tensor& offsets, const std::string& mode,
                     const Tensor& per_sample_weights, bool include_last_offset,
                     std::optional<int64_t> padding_idx) {
  Bags b{ids, offsets, per_sample_weights};
  if (!ids.defined() || !weight.defined())
    return apply1(kEmbeddingBag, {ids, weight, offsets}, {{"mode", mode}});
  if (b.weights.defined() && b.weights.shape() != ids.shape())
    refuse_bags(fmt::format("per_sample_weights must be {} as the ids, got {}", ids.shape().str(),
                            b.weights.summary()));
  b.ids = as_places(ids);
  if (offsets.defined()) {
    b.offsets = as_places(offsets);
    if (include_last_offset) cut_at_last_offset(b);
  } else {
    if (ids.dim() != 2) refuse_bags("without offsets ids are [bags, n], got " + ids.summary());
    b.ids = reshape(b.ids, {ids.numel()});
    b.offsets = mul(arange(ids.size(0), ids.device()), ids.size(1));
    if (b.weights.defined()) b.weights = reshape(b.weights, {ids.numel()});
  }
  if (padding_idx && weight.dim() == 2 && b.ids.dim() == 1 && b.ids.dtype() == int64 && b.offsets.dim() == 1)
    leave_out_row(b, row_from_start("embedding_bag", *padding_idx, weight.size(0)));
  if (b.weights.defined())
    return apply1(kEmbeddingBag, {b.ids, weight, b.offsets, b.weights}, {{"mode", mode}});
  return apply1(kEmbeddingBag, {b.ids, weight, b.offsets}, {{"mode", mode}});
}

Tensor embedding(const Tensor& ids, const Tensor& weight, std::optional<int64_t> padding_idx) {
  const Tensor y = embedding(ids, weight);
  if (!padding_idx) return y;
  const int64_t at = row_from_start("embedding", *padding_idx, weight.size(0));
  return y.requires_grad() ? where(unsqueeze(eq(ids, at), -1), y.detach(), y) : y;
}

}  // namespace troupe::ops
