#include "ops/index.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/inplace_write.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/dispatch/promote.h"
#include "ops/gradient_rules.h"
#include "ops/min_max.h"
#include "ops/view.h"

namespace troupe::ops {

Tensor as_places(const Tensor& index) {
  return index.defined() && index.dtype() == int32 ? to(index, int64) : index;
}

namespace {

using Ints = std::vector<int64_t>;

int axis(const Call& c, const Shape& shape) {
  if (shape.empty()) reject(c, "needs at least one dimension, got a 0-d tensor");
  return shape.axis(c.attrs.integer("dim"), c.name());
}

Specs embedding_spec(const Call& c) {
  require_int64(c, c.in[0], "ids");
  const Shape& w = c.in[1].shape();
  if (w.rank() != 2) reject(c, "weight must be [n, d], got " + w.str());
  Shape out = c.in[0].shape();
  out.push_back(w[1]);
  return {{out, c.in[1].dtype()}};
}

Specs embedding_grad_spec(const Call& c) {
  require_int64(c, c.in[0], "ids");
  require_floating(c, c.in[1]);
  const Shape &ids = c.in[0].shape(), &g = c.in[1].shape();
  Shape expected = ids;
  if (!g.empty()) expected.push_back(g.back());
  if (g != expected)
    reject(c, fmt::format("ids {} and gradient {} do not belong together", ids.str(), g.str()));
  return {{Shape{c.attrs.integer("rows"), g.back()}, c.in[1].dtype()}};
}

Specs index_spec(const Call& c, int64_t size) {
  require_int64(c, c.in[1], "index");
  if (c.in[1].dim() != 1) reject(c, "index must be 1-d, got " + c.in[1].summary());
  Shape out = c.in[0].shape();
  out[axis(c, out)] = size;
  return {{out, c.in[0].dtype()}};
}

Specs index_select_spec(const Call& c) { return index_spec(c, c.in[1].numel()); }

Specs index_select_grad_spec(const Call& c) {
  require_floating(c, c.in[0]);
  if (c.in[0].shape()[axis(c, c.in[0].shape())] != c.in[1].numel())
    reject(c, fmt::format("{} slices for {} indices", c.in[0].shape().str(), c.in[1].numel()));
  return index_spec(c, c.attrs.integer("size"));
}

Specs index_copy_spec(const Call& c) {
  const Specs slices = index_spec(c, c.in[1].numel());
  require_shape(c, 2, slices[0].shape);
  if (c.in[2].dtype() != c.in[0].dtype())
    reject(c, fmt::format("inputs differ in dtype: {} and {}; use .to() on one of them", c.in[0].summary(),
                          c.in[2].summary()));
  return same_spec(c);
}

// index fits x everywhere but along dim.
void check_gather(const Call& c) {
  require_int64(c, c.in[1], "index");
  const Shape &x = c.in[0].shape(), &index = c.in[1].shape();
  bool fits = x.rank() == index.rank();
  const int dim = x.axis(c.attrs.integer("dim"), c.name());
  for (int i = 0; fits && i < x.rank(); ++i) fits = i == dim || index[i] <= x[i];
  if (!fits) reject(c, fmt::format("index {} does not fit {} along dimension {}", index.str(), x.str(), dim));
}

Specs gather_spec(const Call& c) {
  check_gather(c);
  return {{c.in[1].shape(), c.in[0].dtype()}};
}

Specs scatter_add_spec(const Call& c) {
  check_gather(c);
  require_same_shape(c, c.in[1], c.in[2]);
  if (c.in[0].dtype() != c.in[2].dtype())
    reject(c, fmt::format("inputs differ in dtype: {} and {}; use .to() on one of them", c.in[0].summary(),
                          c.in[2].summary()));
  return same_spec(c);
}

// A part [0] fits all others, as in PyTorch.
bool fits_all(const Shape& part) { return part.rank() == 1 && part[0] == 0; }

Specs cat_spec(const Call& c) {
  require_same_dtype(c);
  size_t first = 0;
  while (first + 1 < c.in.size() && fits_all(c.in[first].shape())) ++first;
  Shape out = c.in[first].shape();
  const int dim = axis(c, out);
  for (size_t i = first + 1; i < c.in.size(); ++i) {
    const Shape& part = c.in[i].shape();
    if (fits_all(part)) continue;
    bool fits = part.rank() == out.rank();
    for (int d = 0; fits && d < out.rank(); ++d) fits = d == dim || part[d] == out[d];
    if (!fits)
      reject(c, fmt::format("{} and {} differ outside dimension {}", c.in[first].shape().str(), part.str(),
                            dim));
    out[dim] += part[dim];
  }
  return {{out, c.in[0].dtype()}};
}

Tensors stacked(const Call& c) {
  require_same_dtype(c);
  Tensors parts;
  const int64_t dim = c.attrs.integer("dim");
  for (const Tensor& t : c.in) {
    require_same_shape(c, c.in[0], t);
    parts.push_back(unsqueeze(t, dim));
  }
  return {cat(parts, dim)};
}

Tensors split_views(const Call& c) {
  const Tensor& x = c.in[0];
  const int dim = axis(c, x.shape());
  const Ints& sizes = c.attrs.ints("sizes");
  int64_t left = x.shape()[dim];
  for (int64_t s : sizes) {
    if (s < 0) reject(c, fmt::format("sizes must be at least 0, got {}", str(AttrValue(sizes))));
    left = s > left ? -1 : left - s;  // once below 0 it stays there
  }
  if (sizes.empty() || left != 0)
    reject(c, fmt::format("sizes {} do not add up to dimension {} of {}", str(AttrValue(sizes)), dim,
                          x.shape().str()));
  Tensors out;
  int64_t start = 0;
  for (int64_t s : sizes) {
    Shape shape = x.shape();
    shape[dim] = s;
    out.push_back(x.alias(shape, x.strides(), x.storage_offset() + (s ? start * x.strides()[dim] : 0)));
    start += s;
  }
  return out;
}

Specs pad_spec(const Call& c) {
  require_fits(c.attrs.scalar("value"), c.in[0].dtype(), c.name());
  const Ints& widths = c.attrs.ints("pad");
  Shape out = c.in[0].shape();
  if (widths.size() % 2 || widths.size() / 2 > static_cast<size_t>(out.rank()))
    reject(c, fmt::format("pad {} must be two numbers for each of at most {} dimensions",
                          str(AttrValue(widths)), out.rank()));
  for (size_t i = 0; i < widths.size(); ++i) {
    int64_t& size = out[out.rank() - 1 - static_cast<int>(i / 2)];
    if (widths[i] < 0 || __builtin_add_overflow(size, widths[i], &size))
      reject(c,
             fmt::format("widths must be at least 0 and sizes be countable, got {}", str(AttrValue(widths))));
  }
  return {{out, c.in[0].dtype()}};
}

Specs one_hot_spec(const Call& c) {
  require_int64(c, c.in[0], "ids");
  if (c.attrs.integer("num_classes") < 1)
    reject(c, fmt::format("num_classes must be at least 1, got {}", c.attrs.integer("num_classes")));
  Shape out = c.in[0].shape();
  out.push_back(c.attrs.integer("num_classes"));
  return {{out, int64}};
}

// A 0-d tensor counts as [1], a 0-d index and its slice too.
Tensors added_slices(const Call& c) {
  const Shape shape = c.in[0].dim() ? c.in[0].shape() : Shape{1};
  const int dim = shape.axis(c.attrs.integer("dim"), c.name());
  const Tensor index = as_places(c.in[1]);
  require_int64(c, index, "index");
  if (index.dim() > 1) reject(c, "index must be 1-d, got " + index.summary());
  Shape slices = shape;
  slices[dim] = index.numel();
  const Tensor& source = c.in[2];
  if (source.dim() ? source.shape() != slices : slices != Shape{1})
    reject(c, fmt::format("source must be {} for {} indices along dimension {} of {}, got {}", slices.str(),
                          index.numel(), dim, c.in[0].summary(), source.summary()));
  if (source.dtype() != c.in[0].dtype())
    reject(c, fmt::format("inputs differ in dtype: {} and {}; use .to() on one of them", c.in[0].summary(),
                          source.summary()));
  const Scalar& alpha = c.attrs.scalar("alpha");
  if (alpha.is_floating() && !is_floating(source.dtype()))
    reject(c, fmt::format("alpha must be an integer for {}, got {}", source.summary(), alpha.str()));
  Ints lie(static_cast<size_t>(shape.rank()), 1);
  lie[static_cast<size_t>(dim)] = index.numel();
  const Tensor sum = scatter_add(
      reshape(c.in[0], to_list(shape)), dim, expand(reshape(index, lie), to_list(slices)),
      reshape(alpha == Scalar(1) ? source : to(mul(source, alpha), source.dtype()), to_list(slices)));
  return {reshape(sum, to_list(c.in[0].shape()))};
}

Tensor indices(const Ints& values, const Shape& shape) { return tensor(values).reshape(shape); }

}  // namespace

const Op kEmbedding{
    .name = "embedding",
    .inputs = "input weight",
    .text = "The rows of weight with the numbers input.",
    .internal = true,  // the function has padding_idx
    .shape = embedding_spec,
    .saves_inputs = 0b01,
    .gradient = [](const Backward& b) -> Tensors {
      const Tensor inputs[] = {b.in[0], b.grads[0]};
      return {Tensor(), apply_accumulating(kEmbeddingGrad, inputs, b.sum(1), {{"rows", b.shape(1)[0]}})[0]};
    },
    .takes_half = true,
    .samples = []() -> std::vector<Sample> {
      return {{{indices({0, 2, 2, 4, 1, 0}, {2, 3}), sample({5, 3})}}, {{indices({}, {0}), sample({5, 3})}}};
    }};

const Op kEmbeddingGrad{.name = "embedding_grad",
                        .inputs = "grad input",
                        .text = "Gradient of embedding's weight.",
                        .internal = true,
                        .attrs = {{"rows", 0}},
                        .shape = embedding_grad_spec,
                        .saves_inputs = 0b01,
                        .gradient = [](const Backward& b) -> Tensors {
                          return {Tensor(), embedding(b.in[0], b.grads[0])};
                        },
                        .samples = []() -> std::vector<Sample> {
                          return {{{indices({0, 2, 2}, {3}), sample({3, 2})}, {{"rows", 4}}}};
                        }};

const Op kIndexSelect{
    .name = "index_select",
    .inputs = "input index",
    .text = "The slices of input along dim with the numbers index.",
    .attrs = {{"dim", 0}},
    .order = "input dim index",
    .shape = index_select_spec,
    .saves_inputs = 0b10,
    .gradient = [](const Backward& b) -> Tensors {
      const int64_t dim = b.attrs.integer("dim");
      return {apply1(kIndexSelectGrad, {b.grads[0], b.in[1]},
                     {{"dim", dim}, {"size", b.shape(0)[b.shape(0).axis(dim, "index_select")]}})};
    },
    .takes_half = true,
    .function = [](std::span<const Tensor> in, const Attrs& a) -> Tensors {
      return {index_select(in[0], a.integer("dim"), in[1])};
    },
    .samples = []() -> std::vector<Sample> {
      return {{{sample({3, 4}), indices({0, 2, 2}, {3})}},
              {{sample({3, 4}), indices({3, 0}, {2})}, {{"dim", -1}}}};
    }};

const Op kIndexSelectGrad{.name = "index_select_grad",
                          .inputs = "source index",
                          .text = "Zeros, with slices added along dim at the numbers index.",
                          .internal = true,
                          .attrs = {{"dim", 0}, {"size", 0}},
                          .shape = index_select_grad_spec,
                          .saves_inputs = 0b10,
                          .gradient = [](const Backward& b) -> Tensors {
                            return {index_select(b.grads[0], b.attrs.integer("dim"), b.in[1])};
                          },
                          .samples = []() -> std::vector<Sample> {
                            return {{{sample({3, 2}), indices({0, 2, 2}, {3})}, {{"dim", 0}, {"size", 4}}}};
                          }};

const Op kIndexAdd{
    .name = "index_add",
    .inputs = "input index source",
    .text = "A copy of input with alpha source added to its slices index along dim.",
    .attrs = {{"dim", 0}, {"alpha", Scalar(1)}},
    .order = "input dim index source alpha",
    .compose = added_slices,
    .samples = []() -> std::vector<Sample> {
      return {{{sample({4, 3}), indices({2, 0, 2}, {3}), sample({3, 3}, -2, 2, 1)}},
              {{sample({2, 4}), indices({1}, {1}), sample({2, 1}, -2, 2, 1)}, {{"dim", -1}, {"alpha", 0.5}}},
              {{sample({}), indices({0}, {}), sample({}, -2, 2, 1)}}};
    }};

const Op kIndexCopy{.name = "index_copy",
                    .inputs = "input index source",
                    .text = "A copy of input with source in its slices index along dim.",
                    .attrs = {{"dim", 0}},
                    .order = "input dim index source",
                    .shape = index_copy_spec,
                    .saves_inputs = 0b010,
                    .gradient = [](const Backward& b) -> Tensors {
                      const int64_t dim = b.attrs.integer("dim");
                      const Tensor& g = b.grads[0];
                      Tensors out(3);
                      if (b.needs(0)) out[0] = index_copy(g, dim, b.in[1], zeros(b.shape(2), g.options()));
                      if (b.needs(2)) out[2] = index_select(g, dim, b.in[1]);
                      return out;
                    },
                    .takes_half = true,
                    .function = [](std::span<const Tensor> in, const Attrs& a) -> Tensors {
                      return {index_copy(in[0], a.integer("dim"), in[1], in[2])};
                    },
                    .samples = []() -> std::vector<Sample> {
                      return {{{sample({4, 3}), indices({2, 0}, {2}), sample({2, 3}, -2, 2, 1)}},
                              {{sample({2, 4}), indices({1}, {1}), sample({2, 1}, -2, 2, 1)}, {{"dim", -1}}}};
                    }};

const Op kGather{.name = "gather",
                 .inputs = "input index",
                 .text = "The elements of input along dim with the numbers index.",
                 .attrs = {{"dim", 0}},
                 .order = "input dim index",
                 .shape = gather_spec,
                 .saves_inputs = 0b10,
                 .gradient = [](const Backward& b) -> Tensors {
                   return {scatter_add(zeros(b.shape(0), {b.in_specs[0].dtype, b.device()}),
                                       b.attrs.integer("dim"), b.in[1], b.grads[0])};
                 },
                 .takes_half = true,
                 .function = [](std::span<const Tensor> in, const Attrs& a) -> Tensors {
                   return {gather(in[0], a.integer("dim"), in[1])};
                 },
                 .samples = []() -> std::vector<Sample> {
                   return {{{sample({3, 4}), indices({0, 3, 1, 1, 2, 2}, {3, 2})}, {{"dim", 1}}},
                           {{sample({3, 4}), indices({0, 2, 1}, {1, 3})}, {{"dim", 0}}}};
                 }};

const Op kScatterAdd{
    .name = "scatter_add",
    .inputs = "input index src",
    .text = "A copy of input with src added along dim at the numbers index.",
    .attrs = {{"dim", 0}},
    .order = "input dim index src",
    .shape = scatter_add_spec,
    .saves_inputs = 0b010,
    .gradient = [](const Backward& b) -> Tensors {
      Tensors out{b.grads[0], Tensor(), Tensor()};
      if (b.needs(2)) out[2] = gather(b.grads[0], b.attrs.integer("dim"), b.in[1]);
      return out;
    },
    .widens_bool = true,
    .function = [](std::span<const Tensor> in, const Attrs& a) -> Tensors {
      return {scatter_add(in[0], a.integer("dim"), in[1], in[2])};
    },
    .samples = []() -> std::vector<Sample> {
      return {
          {{sample({3, 4}), indices({0, 3, 1, 1, 2, 2}, {3, 2}), sample({3, 2}, -2, 2, 1)}, {{"dim", 1}}}};
    }};

const Op kCat{.name = "cat",
              .inputs = "tensors",
              .text = "Tensors one after the other along dim.",
              .max_inputs = -1,
              .attrs = {{"dim", 0}},
              .shape = cat_spec,
              .gradient = [](const Backward& b) -> Tensors {
                const int64_t dim = b.attrs.integer("dim");
                Tensors out(b.in_specs.size());
                int64_t start = 0;
                for (size_t i = 0; i < out.size(); ++i) {
                  if (fits_all(b.shape(i))) {
                    if (b.needs(i)) out[i] = zeros(b.shape(i), {b.grads[0].dtype(), b.device()});
                    continue;
                  }
                  const int64_t size = b.shape(i)[b.shape(i).axis(dim, "cat")];
                  if (b.needs(i)) out[i] = slice(b.grads[0], dim, start, start + size);
                  start += size;
                }
                return out;
              },
              .takes_half = true,
              .promotes = Promotion::common,
              .samples = []() -> std::vector<Sample> {
                return {{{sample({3, 4}), sample({3, 2}, -2, 2, 1), sample({3, 0})}, {{"dim", -1}}},
                        {{sample({0}), sample({3, 4}), sample({0})}, {{"dim", 1}}},
                        {{sample({2}), sample({1})}}};
              }};

const Op kStack{.name = "stack",
                .inputs = "tensors",
                .text = "Tensors of one shape, side by side along a new dimension.",
                .max_inputs = -1,
                .attrs = {{"dim", 0}},
                .compose = stacked,
                .takes_half = true,
                .promotes = Promotion::common,
                .samples = []() -> std::vector<Sample> {
                  return {{{sample({3, 4}), sample({3, 4}, -2, 2, 1)}, {{"dim", 1}}},
                          {{sample({}), sample({}, -2, 2, 1)}}};
                }};

const Op kSplit{.name = "split",
                .text = "Consecutive pieces of the given sizes along dim, as views.",
                .internal = true,
                .attrs = {{"sizes", Ints{}}, {"dim", 0}},
                .view = split_views,
                .splits = true,
                .gradient = [](const Backward& b) -> Tensors {
                  return {cat({b.grads.begin(), b.grads.end()}, b.attrs.integer("dim"))};
                },
                .samples = []() -> std::vector<Sample> {
                  return {{{sample({3, 6})}, {{"sizes", Ints{1, 3, 2}}, {"dim", 1}}}};
                }};

const Op kPad{.name = "pad",
              .text = "value around input; pad: {before, after} of the last dimension, of the one before, ..",
              .internal = true,
              .attrs = {{"pad", Ints{}}, {"value", Scalar(0)}},
              .shape = pad_spec,
              .gradient = [](const Backward& b) -> Tensors {
                const Ints& widths = b.attrs.ints("pad");
                Tensor g = b.grads[0];
                for (size_t i = 0; i < widths.size() / 2; ++i) {
                  const int dim = b.shape(0).rank() - 1 - static_cast<int>(i);
                  g = slice(g, dim, widths[2 * i], widths[2 * i] + b.shape(0)[dim]);
                }
                return {g};
              },
              .takes_half = true,
              .samples = []() -> std::vector<Sample> {
                return {{{sample({2, 3, 4})}, {{"pad", Ints{1, 2, 0, 1}}}},
                        {{sample({2})}, {{"pad", Ints{1, 0}}, {"value", 3.0}}}};
              }};

const Op kOneHot{.name = "one_hot",
                 .text = "int64 of 0, with a 1 at each number in [0, num_classes).",
                 .internal = true,
                 .attrs = {{"num_classes", 1}},
                 .shape = one_hot_spec,
                 .samples = []() -> std::vector<Sample> {
                   return {{{indices({0, 2, 1, 2}, {2, 2})}, {{"num_classes", 3}}}};
                 }};

Tensor embedding(const Tensor& ids, const Tensor& weight) { return apply1(kEmbedding, {ids, weight}); }

namespace {

// In what follows 0-d tensors count as [1].
Tensor as_line(const Tensor& x) { return x.defined() && x.dim() == 0 ? reshape(x, {1}) : x; }

// Whether some of them are 0-d and others are not.
bool mixed_with_0d(std::initializer_list<const Tensor*> all) {
  bool some = false, others = false;
  for (const Tensor* t : all) {
    if (!t->defined() || t->dim() > 1) return false;
    (t->dim() == 0 ? some : others) = true;
  }
  return some && others;
}

}  // namespace

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index) {
  if (x.defined() && index.defined() && (x.dim() == 0 || index.dim() == 0)) {
    if (x.dim() == 0 && index.numel() != 1)
      throw_invalid("[index_select] a 0-d tensor takes one index, got " + index.summary());
    const Tensor y = index_select(as_line(x), dim, reshape(index, {index.numel()}));
    return x.dim() ? y : reshape(y, {});
  }
  return apply1(kIndexSelect, {x, as_places(index)}, {{"dim", dim}});
}
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha) {
  return apply1(kIndexAdd, {x, index, source}, {{"dim", dim}, {"alpha", alpha}});
}
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
  if (x.defined() && x.dim() == 0) return reshape(index_copy(as_line(x), dim, index, source), {});
  if (source.defined() && source.dim() == 0) return index_copy(x, dim, index, as_line(source));
  if (index.defined() && index.dim() == 0) return index_copy(x, dim, as_line(index), source);
  return apply1(kIndexCopy, {x, index, source}, {{"dim", dim}});
}
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index) {
  if (mixed_with_0d({&x, &index}))
    return reshape(gather(as_line(x), dim, as_line(index)), to_list(index.shape()));
  return apply1(kGather, {x, as_places(index)}, {{"dim", dim}});
}
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  if (mixed_with_0d({&x, &index, &src}))
    return reshape(scatter_add(as_line(x), dim, as_line(index), as_line(src)), to_list(x.shape()));
  return apply1(kScatterAdd, {x, as_places(index), src}, {{"dim", dim}});
}
Tensor cat(const Tensors& tensors, int64_t dim) { return apply(kCat, tensors, {{"dim", dim}})[0]; }
Tensor stack(const Tensors& tensors, int64_t dim) { return apply(kStack, tensors, {{"dim", dim}})[0]; }
Tensors split(const Tensor& x, const IntList& split_sizes, int64_t dim) {
  return apply(kSplit, {&x, 1}, {{"sizes", split_sizes}, {"dim", dim}});
}
Tensor one_hot(const Tensor& ids, int64_t num_classes) {
  if (num_classes == -1 && ids.defined()) {
    if (ids.numel() == 0) throw_invalid("[one_hot] of no numbers num_classes must be given");
    num_classes = max(ids).item<int64_t>() + 1;
  }
  return apply1(kOneHot, {ids}, {{"num_classes", num_classes}});
}

}  // namespace troupe::ops
