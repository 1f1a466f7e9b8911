#include "ops/nonzero.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/gradient_rules.h"
#include "ops/index.h"
#include "ops/reduce.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

Specs nonzero_spec(const Call& c) {
  const auto all = ne(c.in[0], 0).to_vector<bool>();
  return {{Shape{std::count(all.begin(), all.end(), true), c.in[0].dim()}, int64}};
}

Tensors selected(const Call& c) {
  const Tensor &x = c.in[0], &mask = c.in[1];
  if (mask.dtype() != boolean) reject(c, fmt::format("the mask must be bool, got {}", mask.summary()));
  const Shape shape = broadcast(x.shape(), mask.shape(), c.name());
  const std::vector<int64_t> all{shape.numel()};
  const Tensor places = reshape(nonzero(reshape(expand(mask, to_list(shape)), all)), {-1});
  return {index_select(reshape(expand(x, to_list(shape)), all), 0, places)};
}

Tensors taken(const Call& c) {
  const Tensor &x = c.in[0], &index = c.in[1];
  require_int64(c, index, "index");
  const int64_t n = x.numel();
  const Tensor flat = reshape(index, {index.numel()});
  const Tensor places = where(lt(flat, 0), add(flat, n), flat);
  return {reshape(index_select(reshape(x, {n}), 0, places), to_list(index.shape()))};
}

Specs bincount_spec(const Call& c) {
  const Tensor& x = c.in[0];
  if (is_floating(x.dtype()) || x.dtype() == boolean || x.dim() != 1)
    reject(c, "needs integers [n], got " + x.summary());
  int64_t size = c.attrs.integer("minlength");
  if (size < 0) reject(c, fmt::format("minlength must be at least 0, got {}", size));
  for (const int64_t v : x.to_vector<int64_t>()) {
    if (v < 0) reject(c, fmt::format("needs numbers of at least 0, got {}", v));
    if (v == std::numeric_limits<int64_t>::max()) reject(c, fmt::format("{} is too large a number", v));
    size = std::max(size, v + 1);
  }
  return {{Shape{size}, int64}};
}

Tensor mask_of(const Shape& shape) { return gt(sample(shape, -1, 1, 2), tensor(0, float64)); }

}  // namespace

const Op kNonzero{.name = "nonzero",
                  .text = "The places of the elements that are not 0: int64 [n, dimensions].",
                  .internal = true,  // the function has as_tuple
                  .shape = nonzero_spec,
                  .takes_half = true,
                  .samples = []() -> std::vector<Sample> {
                    return {{{tensor({{0, 1.5, -2}, {0, 0, 3}}, float64)}},
                            {{sample({})}},
                            {{sample({0, 2})}},
                            {{mask_of({2, 2, 3})}}};
                  }};

const Op kMaskedSelect{.name = "masked_select",
                       .inputs = "input mask",
                       .text = "The elements where mask is true.",
                       .compose = selected,
                       .takes_half = true,
                       .samples = []() -> std::vector<Sample> {
                         return {{{sample({3, 4}), mask_of({3, 4})}},
                                 {{sample({3, 1}), mask_of({4})}},
                                 {{sample({}), mask_of({2})}},
                                 {{sample({0, 2}), mask_of({2})}}};
                       }};

const Op kTake{.name = "take",
               .inputs = "input index",
               .text = "The elements, numbered in row-major order, with the numbers index.",
               .compose = taken,
               .takes_half = true,
               .samples = []() -> std::vector<Sample> {
                 return {{{sample({2, 3}), tensor({{0, -1}, {4, 4}})}}};
               }};

const Op kBincount{
    .name = "bincount",
    .text = "How often each number from 0 on occurs.",
    .internal = true,
    .attrs = {{"minlength", 0}},
    .shape = bincount_spec,
    .samples = []() -> std::vector<Sample> {
      return {{{tensor({1, 3, 1, 0})}}, {{tensor({1})}, {{"minlength", 4}}}, {{empty({0}, int64)}}};
    }};

Tensor nonzero(const Tensor& x) { return apply1(kNonzero, {x}); }
Tensor masked_select(const Tensor& x, const Tensor& mask) { return apply1(kMaskedSelect, {x, mask}); }
Tensor take(const Tensor& x, const Tensor& index) { return apply1(kTake, {x, index}); }
Tensor bincount(const Tensor& x, const Tensor& weights, int64_t minlength) {
  const Tensor counts = apply1(kBincount, {x}, {{"minlength", minlength}});
  if (!weights.defined()) return counts;
  if (weights.shape() != x.shape())
    throw_invalid("[bincount] weights must be " + x.shape().str() + ", got " + weights.summary());
  const Tensor w = to(weights.detach(), weights.dtype() == float32 ? float32 : float64);
  return scatter_add(zeros(counts.shape(), w.options()), 0, to(x, int64), w);
}
Tensor count_nonzero(const Tensor& x, const IntList& dim) { return sum(ne(x, 0), dim); }

}  // namespace troupe::ops
