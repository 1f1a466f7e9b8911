#include "ops/scatter.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "core/base/error.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/dispatch/promote.h"
#include "ops/gradient_rules.h"
#include "ops/index.h"
#include "ops/indexing.h"
#include "ops/logic.h"
#include "ops/nonzero.h"
#include "ops/reduce.h"
#include "ops/sort.h"
#include "ops/unary.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

using Numbers = std::vector<int64_t>;

// The places in row-major order of what is written, and what is written there.
struct Written {
  Tensor at, src;
};

// Gives src, cut to the index.
Tensor fitting(const Call& c, const Tensor& index, const Tensor& src) {
  Tensor part = src;
  bool fits = src.dim() == index.dim();
  for (int d = 0; fits && d < src.dim(); ++d) {
    fits = src.shape()[d] >= index.shape()[d];
    if (fits) part = slice(part, d, 0, index.shape()[d]);
  }
  if (!fits) reject(c, fmt::format("index {} is larger than src {}", index.shape().str(), src.shape().str()));
  return part;
}

// 0-d tensors are [1] here.
Written written(const Call& c) {
  const Tensor &x = c.in[0], &index = c.in[1], &src = c.in[2];
  require_int64(c, index, "index");
  const int dim = x.shape().axis(c.attrs.integer("dim"), c.name());
  if (src.dtype() != x.dtype())
    reject(c, fmt::format("inputs differ in dtype: {} and {}; use .to() on one of them", x.summary(),
                          src.summary()));
  const Tensor part = fitting(c, index, src);
  (void)gather(x.detach(), dim, index);  // refuses what does not fit, and numbers out of range
  const Shape strides = x.shape().contiguous_strides();
  Tensor at = mul(index, strides[dim]);
  for (int d = 0; d < x.dim(); ++d) {
    if (d == dim) continue;
    Numbers lie(static_cast<size_t>(x.dim()), 1);
    lie[static_cast<size_t>(d)] = index.shape()[d];
    at = add(at, reshape(mul(arange(0, index.shape()[d], 1, {int64, x.device()}), strides[d]), lie));
  }
  return {reshape(at, {index.numel()}), reshape(part, {index.numel()})};
}

Tensor as_line_of(const Tensor& x) { return reshape(x, {x.numel()}); }

Tensors scattered(const Call& c) {
  const Written w = written(c);
  const Tensor y = index_copy(as_line_of(c.in[0]), 0, w.at, w.src);
  return {reshape(y, to_list(c.in[0].shape()))};
}

// What belongs to the elements of the index, with zeros where src is larger.
Tensor padded_to_source(const Backward& b, const Tensor& part) {
  const Shape &full = b.shape(2), &small = b.shape(1);
  Numbers widths;
  for (int d = full.rank() - 1; d >= 0; --d) widths.insert(widths.end(), {0, full[d] - small[d]});
  return full == small ? part : pad(part, widths);
}
Tensor to_source(const Backward& b, const Tensor& g) {
  return padded_to_source(b, gather(g, b.attrs.integer("dim"), b.in[1]));
}

Tensor cleared(const Backward& b, const Tensor& g) {
  return scatter(g, b.attrs.integer("dim"), b.in[1], Scalar(0));
}

Tensors scatter_gradient(const Backward& b) {
  Tensors out(3);
  if (b.needs(0)) out[0] = cleared(b, b.grads[0]);
  if (b.needs(2)) out[2] = to_source(b, b.grads[0]);
  return out;
}

// ---- scatter_reduce

// What x has where it takes no part.
Scalar neutral(const std::string& reduce, DType t) {
  const bool largest = reduce == "amin";
  if (reduce == "prod") return 1;
  if (reduce == "sum" || reduce == "mean") return 0;
  if (is_floating(t)) return largest ? HUGE_VAL : -HUGE_VAL;
  if (t == boolean) return largest;
  return visit_dtype(t, [&](auto zero) -> Scalar {
    using T = decltype(zero);
    if constexpr (std::is_integral_v<T>)
      return static_cast<int64_t>(largest ? std::numeric_limits<T>::max() : std::numeric_limits<T>::lowest());
    else
      return 0;
  });
}

// The largest (smallest) ones are written last. A NaN is both.
Tensor extreme_at(const Tensor& x, const Written& w, bool largest) {
  const Tensor order = argsort(w.src, 0, !largest);
  const Tensor at = index_select(w.at, 0, order), src = index_select(w.src, 0, order);
  const Tensor best = index_copy(x, 0, at, src);
  const Tensor y = largest ? maximum(x, best) : minimum(x, best);
  if (largest || !is_floating(x.dtype())) return y;
  const Tensor nan = isnan(w.src);
  return where(ne(scatter_add(zeros_like(x), 0, w.at, to(nan, x.dtype())), 0),
               std::numeric_limits<double>::quiet_NaN(), y);
}

// What is written, so that none of equal numbers are in one round.
std::vector<Numbers> rounds_of(const Written& w) {
  std::unordered_map<int64_t, size_t> seen;
  std::vector<Numbers> rounds;
  const Numbers at = w.at.to_vector<int64_t>();
  for (size_t i = 0; i < at.size(); ++i) {
    const size_t round = seen[at[i]]++;
    if (round == rounds.size()) rounds.emplace_back();
    rounds[round].push_back(static_cast<int64_t>(i));
  }
  return rounds;
}

// One of equal numbers after the other; the products to which each was a factor go to `factors_of`.
Tensor product_at(Tensor x, const Written& w, const std::vector<Numbers>& rounds, Tensors* factors_of = {}) {
  for (const Numbers& round : rounds) {
    const Tensor places = tensor(round, x.device()), to = index_select(w.at, 0, places);
    const Tensor before = index_select(x, 0, to);
    if (factors_of) factors_of->push_back(before);
    x = index_copy(x, 0, to, mul(before, index_select(w.src, 0, places)));
  }
  return x;
}

// The product of the other factors, for the elements of x and those of src: of those before and those behind,
// so that a factor may be 0.
struct OtherFactors {
  Tensor of_x, of_src;
};
OtherFactors other_factors(const Tensor& x, const Written& w) {
  std::vector<Numbers> rounds = rounds_of(w);
  Tensors before, behind, places;
  (void)product_at(x, w, rounds, &before);
  std::ranges::reverse(rounds);
  const Tensor of_x = product_at(ones_like(x), w, rounds, &behind);
  if (rounds.empty()) return {of_x, w.src};
  Tensors others;
  for (size_t i = 0; i < rounds.size(); ++i) {
    others.push_back(mul(before[rounds.size() - 1 - i], behind[i]));
    places.push_back(tensor(rounds[i], x.device()));
  }
  return {of_x, index_copy(zeros_like(w.src), 0, cat(places), cat(others))};
}

// How many numbers make each element.
Tensor counts_at(const Tensor& like, int64_t dim, const Tensor& at, bool include_self) {
  const Tensor start = include_self ? ones_like(like) : zeros_like(like);
  return scatter_add(start, dim, at, ones(at.shape(), like.options()));
}
Tensor at_least_one(const Tensor& n) { return where(eq(n, 0), 1, n); }

Tensors reduced_at(const Call& c) {
  const std::string& reduce = c.attrs.text("reduce");
  constexpr std::string_view kKnown[] = {"sum", "prod", "mean", "amax", "amin"};
  if (std::ranges::find(kKnown, reduce) == std::end(kKnown))
    reject(c, fmt::format("reduce must be \"sum\", \"prod\", \"mean\", \"amax\" or \"amin\", got \"{}\"",
                          reduce));
  if (reduce == "mean" && c.in[0].dtype() == boolean) reject(c, "has no mean of bools; use .to(int64)");
  const Written w = written(c);
  const bool include_self = c.attrs.flag("include_self");
  Tensor x = as_line_of(c.in[0]);
  if (!include_self) x = index_copy(x, 0, w.at, full(w.at.shape(), neutral(reduce, x.dtype()), x.options()));
  if (reduce == "prod") {
    x = product_at(x, w, rounds_of(w));
  } else if (reduce == "amax" || reduce == "amin") {
    x = extreme_at(x, w, reduce == "amax");
  } else {
    x = scatter_add(x, 0, w.at, w.src);
    if (reduce == "mean") {
      const Tensor n = at_least_one(counts_at(x, 0, w.at, include_self));
      x = is_floating(x.dtype()) ? div(x, n) : floor_divide(x, n);
    }
  }
  return {reshape(x, to_list(c.in[0].shape()))};
}

// It is PyTorch's rule, but of a product with zeros among its factors nothing is divided by them.
Tensors scatter_reduce_gradient(const Backward& b) {
  const std::string& reduce = b.attrs.text("reduce");
  const bool include_self = b.attrs.flag("include_self");
  const int64_t dim = b.attrs.integer("dim");
  const Tensor &x = b.in[0], &index = b.in[1], &y = b.out[0], &g = b.grads[0];
  const Tensor src = fitting({b.op, {}, b.attrs}, index, b.in[2]);
  const auto finish = [&](const Tensor& to_x, const Tensor& from) -> Tensors {
    Tensors out(3);
    if (b.needs(0)) out[0] = include_self ? to_x : cleared(b, to_x);
    if (b.needs(2)) out[2] = from;
    return out;
  };
  if (reduce == "sum") return finish(g, to_source(b, g));
  if (reduce == "mean") {
    const Tensor share = div(g, at_least_one(counts_at(x, dim, index, include_self)));
    return finish(share, to_source(b, share));
  }
  if (reduce == "prod") {
    const Tensor touched = ne(counts_at(x, dim, index, false), 0);
    const Tensor factor = include_self ? where(touched, x, 1) : ones_like(x);
    if (any(eq(src.detach(), 0)).item<bool>() || any(eq(factor.detach(), 0)).item<bool>()) {
      const Tensor in[] = {x, index, b.in[2]};
      const Written w = written({b.op, in, b.attrs});
      const OtherFactors o = other_factors(as_line_of(factor), w);
      const Tensor from = mul(index_select(as_line_of(g), 0, w.at), o.of_src);
      return finish(mul(g, reshape(o.of_x, to_list(x.shape()))),
                    padded_to_source(b, reshape(from, to_list(index.shape()))));
    }
    const Tensor whole = mul(g, y);
    return finish(where(touched, div(whole, factor), g),
                  padded_to_source(b, div(gather(whole, dim, index), src)));
  }
  const Tensor hit = to(eq(x.detach(), y.detach()), x.dtype());
  const Tensor source_hit = to(eq(src.detach(), gather(y.detach(), dim, index)), x.dtype());
  const Tensor own = include_self ? hit : scatter(hit, dim, index, Scalar(0));
  const Tensor n = scatter_add(own, dim, index, source_hit);
  const Tensor share = div(g, at_least_one(n));
  return finish(mul(share, hit), padded_to_source(b, mul(gather(share, dim, index), source_hit)));
}

Tensors masked(const Call& c) {
  const Tensor &mask = c.in[1], &source = c.in[2];
  if (mask.dtype() != boolean) reject(c, fmt::format("the mask must be bool, got {}", mask.summary()));
  if (source.dtype() != c.in[0].dtype())
    reject(c, fmt::format("inputs differ in dtype: {} and {}; use .to() on one of them", c.in[0].summary(),
                          source.summary()));
  const Numbers shape = to_list(broadcast(c.in[0].shape(), mask.shape(), c.name()));
  const Tensor x = expand(c.in[0], shape), places = nonzero(as_line_of(expand(mask, shape)));
  const int64_t n = places.size(0);
  if (n > source.numel())
    reject(c, fmt::format("the mask is true {} times, which is more than the elements of {}", n,
                          source.summary()));
  const Tensor first = slice(as_line_of(source), 0, 0, n);
  return {reshape(index_copy(as_line_of(x), 0, reshape(places, {n}), first), shape)};
}

Tensor scatter_index(const Numbers& values, const Shape& shape) {
  return reshape(tensor(values), to_list(shape));
}

std::vector<Sample> scatter_samples() {
  return {
      {{sample({3, 4}), scatter_index({0, 3, 1, 2, 2, 0}, {3, 2}), sample({3, 2}, -2, 2, 1)}, {{"dim", 1}}},
      {{sample({3, 4}), scatter_index({2, 0, 1}, {1, 3}), sample({2, 4}, -2, 2, 1)}, {{"dim", 0}}}};
}

std::vector<Sample> scatter_reduce_samples() {
  std::vector<Sample> all;
  const Tensor x = sample({3, 4}, 0.3, 2), src = sample({3, 3}, 0.3, 2, 1);
  const Tensor index = scatter_index({0, 3, 0, 1, 1, 1, 2, 0, 3}, {3, 3});
  for (const char* reduce : {"sum", "prod", "mean", "amax", "amin"})
    for (const bool include_self : {true, false})
      all.push_back({{x, index, src}, {{"dim", 1}, {"reduce", reduce}, {"include_self", include_self}}});
  return all;
}

}  // namespace

const Op kScatter{.name = "scatter",
                  .inputs = "input index src",
                  .text = "A copy of input with src written along dim at the numbers index.",
                  .internal = true,  // the function also takes a number as src
                  .attrs = {{"dim", 0}},
                  .order = "input dim index src",
                  .compose = scattered,
                  .saves_inputs = 0b010,
                  .gradient = scatter_gradient,
                  .takes_half = true,
                  .samples = scatter_samples};

const Op kScatterReduce{
    .name = "scatter_reduce",
    .inputs = "input index src",
    .text =
        "A copy of input with src added, multiplied, .. along dim at the numbers index; reduce: "
        "\"sum\", \"prod\", \"mean\", \"amax\", \"amin\".",
    .attrs = {{"dim", 0}, {"reduce", "sum"}, {"include_self", true}},
    .order = "input dim index src reduce include_self",
    .compose = reduced_at,
    .saves_inputs = 0b111,
    .saves_outputs = 1,
    .gradient = scatter_reduce_gradient,
    .function = [](std::span<const Tensor> in, const Attrs& a) -> Tensors {
      return {
          scatter_reduce(in[0], a.integer("dim"), in[1], in[2], a.text("reduce"), a.flag("include_self"))};
    },
    .samples = scatter_reduce_samples};

const Op kMaskedScatter{.name = "masked_scatter",
                        .inputs = "input mask source",
                        .text = "The first elements of source where mask is true, and input elsewhere.",
                        .compose = masked,
                        .takes_half = true,
                        .samples = []() -> std::vector<Sample> {
                          const Tensor mask = tensor({{true, false, true}, {false, true, false}});
                          return {{{sample({2, 3}), mask, sample({4}, -2, 2, 1)}},
                                  {{sample({3}), mask, sample({2, 3}, -2, 2, 1)}}};
                        }};

namespace {

// In what follows 0-d tensors count as [1].
Tensor line(const Tensor& x) { return x.defined() && x.dim() == 0 ? reshape(x, {1}) : x; }
bool has_zero_dims(const Tensor& a, const Tensor& b, const Tensor& c) {
  for (const Tensor* t : {&a, &b, &c})
    if (!t->defined()) return false;
  return a.dim() == 0 || b.dim() == 0 || c.dim() == 0;
}

}  // namespace

Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  if (has_zero_dims(x, index, src))
    return reshape(scatter(line(x), dim, line(index), line(src)), to_list(x.shape()));
  return apply1(kScatter, {x, as_places(index), src}, {{"dim", dim}});
}
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, Scalar value) {
  if (!x.defined() || !index.defined()) return apply1(kScatter, {x, index, x});
  require_fits(value, x.dtype(), "scatter");
  return scatter(x, dim, index, expand(wrapped(value, x.dtype(), x.device()), to_list(index.shape())));
}
Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                      const std::string& reduce, bool include_self) {
  if (has_zero_dims(x, index, src))
    return reshape(scatter_reduce(line(x), dim, line(index), line(src), reduce, include_self),
                   to_list(x.shape()));
  return apply1(kScatterReduce, {x, as_places(index), src},
                {{"dim", dim}, {"reduce", reduce.c_str()}, {"include_self", include_self}});
}
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source) {
  return apply1(kMaskedScatter, {x, mask, source});
}

Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, Scalar value) {
  if (!x.defined() || !index.defined()) return apply1(kIndexCopy, {x, index, x});
  require_fits(value, x.dtype(), "index_fill");
  return index_fill(x, dim, index, wrapped(value, x.dtype(), x.device()));
}
Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& value) {
  if (!x.defined() || !index.defined() || !value.defined())
    throw_invalid("[index_fill] got an undefined tensor");
  if (value.dim() != 0)
    throw_invalid("[index_fill] the value must be a number or a 0-d tensor, got " + value.summary());
  if (index.dim() > 1 || (index.dtype() != int64 && index.dtype() != int32))
    throw_invalid("[index_fill] index must be integers [n], got " + index.summary());
  const Tensor at = line(to(index, int64)), y = line(x);
  const int d = y.shape().axis(dim, "index_fill");
  const int64_t n = y.shape()[d];
  const Tensor from_start = where(lt(at, 0), add(at, n), at);
  const Tensor mask =
      index_copy(zeros({n}, {boolean, x.device()}), 0, from_start, ones(at.shape(), {boolean, x.device()}));
  Numbers lie(static_cast<size_t>(y.dim()), 1);
  lie[static_cast<size_t>(d)] = n;  // by a mask, so that equal numbers give the value one gradient
  return reshape(where(reshape(mask, lie), to(value, x.dtype()), y), to_list(x.shape()));
}

Tensor take_along_dim(const Tensor& x, const Tensor& indices, std::optional<int64_t> dim) {
  if (!x.defined() || !indices.defined()) throw_invalid("[take_along_dim] got an undefined tensor");
  if (indices.dtype() != int64 && indices.dtype() != int32)
    throw_invalid("[take_along_dim] indices must be int64 or int32, got " + indices.summary() +
                  "; use .to(int64)");
  if (!dim) return take_along_dim(as_line_of(x), as_line_of(indices), 0);
  if (x.dim() != indices.dim())
    throw_invalid(fmt::format("[take_along_dim] {} and indices {} must have as many dimensions", x.summary(),
                              indices.summary()));
  const int d = x.shape().axis(*dim, "take_along_dim");
  if (x.dim() == 0) return gather(x, 0, indices);
  Shape one = x.shape(), other = indices.shape();
  one[d] = other[d] = 1;
  Shape shared = broadcast(one, other, "take_along_dim");
  Numbers from = to_list(shared), at = from;
  from[static_cast<size_t>(d)] = x.shape()[d];
  at[static_cast<size_t>(d)] = indices.shape()[d];
  const Tensor wide = expand(indices, at);
  return gather(expand(x, from), d, where(lt(wide, 0), add(wide, x.shape()[d]), wide));
}

Tensor index_put(const Tensor& x, const std::vector<TensorIndex>& indices, const Tensor& value,
                 bool accumulate) {
  const Tensor y = clone(x);
  index_put_(y, indices, value, accumulate);
  return y;
}

}  // namespace troupe::ops
