#include "ops/view.h"

#include <fmt/format.h>

#include <limits>

#include "core/base/error.h"
#include "ops/gradient_rules.h"

namespace troupe::ops {
namespace {

Tensor viewed(const Tensor& x, const Shape& shape, const Shape& strides, int64_t offset = 0) {
  return x.alias(shape, strides, x.storage_offset() + offset);
}

Tensors transpose_view(const Call& c) {
  const Tensor& x = c.in[0];
  const int a = x.shape().axis(c.attrs.integer("dim0"), c.name()),
            b = x.shape().axis(c.attrs.integer("dim1"), c.name());
  Shape shape = x.shape(), strides = x.strides();
  std::swap(shape[a], shape[b]);
  std::swap(strides[a], strides[b]);
  return {viewed(x, shape, strides)};
}

std::vector<int> permutation(const Call& c, const Shape& x) {
  const auto& dims = c.attrs.ints("dims");
  if (static_cast<int>(dims.size()) != x.rank())
    reject(c, fmt::format("{} is not an order of the dimensions of {}", str(AttrValue(dims)), x.str()));
  if (!dims.empty()) dim_flags(c, x, dims);
  std::vector<int> order;
  for (int64_t d : dims) order.push_back(x.axis(d, c.name()));
  return order;
}

Tensors permute_view(const Call& c) {
  const Tensor& x = c.in[0];
  Shape shape, strides;
  for (int d : permutation(c, x.shape())) {
    shape.push_back(x.shape()[d]);
    strides.push_back(x.strides()[d]);
  }
  return {viewed(x, shape, strides)};
}

Shape wanted_shape(const Call& c, const Tensor& x) {
  Shape shape(c.attrs.ints("shape"));
  int64_t known = 1;
  int open = -1;
  bool none = false;
  for (int i = 0; i < shape.rank(); ++i) {
    none |= shape[i] == 0;
    if (shape[i] == -1 && open < 0)
      open = i;
    else if (shape[i] < 0)
      reject(c, fmt::format("sizes must be at least 0, one of them -1: got {}", shape.str()));
    else if (__builtin_mul_overflow(known, std::max<int64_t>(shape[i], 1), &known))  // strides must fit too
      reject(c, fmt::format("{} has too many elements", shape.str()));
  }
  if (none) known = 0;
  if (open >= 0) {
    if (known == 0)
      reject(c, fmt::format("the size for -1 is not determined: {} from {}", shape.str(), x.shape().str()));
    if (x.numel() % known == 0) shape[open] = x.numel() / known;
  }
  if (open >= 0 ? shape[open] < 0 : known != x.numel())
    reject(c,
           fmt::format("{} has {} elements, which do not fill {}", x.shape().str(), x.numel(), shape.str()));
  return shape;
}

// Strides of x's elements in `shape`, if there are any: each run of x's dimensions that lie together is cut
// anew.
bool reshaped_strides(const Tensor& x, const Shape& shape, Shape& strides) {
  strides = shape.contiguous_strides();
  if (x.is_contiguous() || x.numel() == 0) return true;
  int to = shape.rank() - 1;
  int64_t run = 1, base = 0;
  bool open = false;
  for (int d = x.dim() - 1; d >= 0; --d) {
    if (!open) base = x.strides()[d];
    open = true;
    run *= x.shape()[d];
    int next = d - 1;
    if (next >= 0 && (x.shape()[next] == 1 || x.strides()[next] == run * base)) continue;
    int64_t step = base, left = run;
    while (to >= 0 && (left > 1 || shape[to] == 1)) {
      if (left % shape[to]) return false;
      strides[to] = step;
      step *= shape[to];
      left /= shape[to--];
    }
    if (left != 1) return false;
    run = 1;
    open = false;
  }
  return true;
}

Tensors reshape_view(const Call& c) {
  const Tensor& x = c.in[0];
  const Shape shape = wanted_shape(c, x);
  Shape strides;
  if (reshaped_strides(x, shape, strides)) return {viewed(x, shape, strides)};
  const Tensor copy = x.clone_data();
  return {viewed(copy, shape, shape.contiguous_strides())};
}

Tensors expand_view(const Call& c) {
  const Tensor& x = c.in[0];
  Shape shape(c.attrs.ints("shape"));
  const int shift = shape.rank() - x.dim();
  bool fits = shift >= 0;
  Shape strides = Shape::filled(shape.rank(), 0);
  for (int i = 0; fits && i < shape.rank(); ++i) {
    const int64_t size = i < shift ? 1 : x.shape()[i - shift];
    if (shape[i] == -1 && i >= shift) shape[i] = size;
    if (shape[i] == size && i >= shift)
      strides[i] = x.strides()[i - shift];
    else
      fits = size == 1 && shape[i] >= 0;
  }
  if (!fits)
    reject(c, fmt::format("{} does not expand to {}", x.shape().str(), Shape(c.attrs.ints("shape")).str()));
  shape.numel();  // throws if it cannot be counted
  return {viewed(x, shape, strides)};
}

// Start and number of elements of a slice.
std::pair<int64_t, int64_t> slice_range(const Call& c, int64_t size) {
  const int64_t step = c.attrs.integer("step");
  if (step < 1) reject(c, fmt::format("step must be at least 1, got {}", step));
  const auto place = [size](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size); };
  const int64_t start = place(c.attrs.integer("start")), stop = place(c.attrs.integer("stop"));
  return {start, stop > start ? (stop - start - 1) / step + 1 : 0};
}

Tensors slice_view(const Call& c) {
  const Tensor& x = c.in[0];
  if (x.dim() == 0) reject(c, "needs at least one dimension, got a 0-d tensor");
  const int dim = x.shape().axis(c.attrs.integer("dim"), c.name());
  const auto [start, count] = slice_range(c, x.shape()[dim]);
  Shape shape = x.shape(), strides = x.strides();
  shape[dim] = count;
  int64_t stride = 0;  // of no meaning, and perhaps too large, where there are no two elements
  if (!__builtin_mul_overflow(strides[dim], c.attrs.integer("step"), &stride)) strides[dim] = stride;
  return {viewed(x, shape, strides, count ? start * x.strides()[dim] : 0)};
}

Specs slice_grad_spec(const Call& c) {
  const Shape shape(c.attrs.ints("shape"));
  Shape sliced = shape;
  const int dim = shape.axis(c.attrs.integer("dim"), c.name());
  sliced[dim] = slice_range(c, shape[dim]).second;
  if (c.in[0].shape() != sliced)
    reject(c, fmt::format("expected {}, got {}", sliced.str(), c.in[0].shape().str()));
  return {{shape, c.in[0].dtype()}};
}

Tensors squeeze_view(const Call& c) {
  const Tensor& x = c.in[0];
  const int dim = x.shape().axis(c.attrs.integer("dim"), c.name());
  Shape shape = x.shape(), strides = x.strides();
  if (x.dim() == 0) return {viewed(x, shape, strides)};
  if (shape[dim] != 1) return {viewed(x, shape, strides)};
  shape.erase(dim);
  strides.erase(dim);
  return {viewed(x, shape, strides)};
}

Tensors unsqueeze_view(const Call& c) {
  const Tensor& x = c.in[0];
  int64_t dim = c.attrs.integer("dim");
  const int64_t n = x.dim() + 1;
  if (dim < -n || dim >= n)
    reject(c, fmt::format("dimension {} is out of range for shape {}", dim, x.shape().str()));
  if (dim < 0) dim += n;
  Shape shape = x.shape(), strides = x.strides();
  shape.insert(static_cast<int>(dim), 1);
  strides.insert(static_cast<int>(dim), 1);
  return {viewed(x, shape, strides)};
}

Specs to_spec(const Call& c) {
  const std::string& wanted = c.attrs.text("dtype");
  for (int i = 0; i < kDTypeCount; ++i)
    if (wanted == name(static_cast<DType>(i))) return {{c.in[0].shape(), static_cast<DType>(i)}};
  reject(c, "dtype is \"" + wanted +
                "\", expected float32, float64, bfloat16, float16, int64, int32, uint8 or bool");
}

Specs flip_spec(const Call& c) {
  if (const auto& dims = c.attrs.ints("dims"); !dims.empty()) dim_flags(c, c.in[0].shape(), dims);
  return same_spec(c);
}

Specs tril_spec(const Call& c) {
  if (c.in[0].dim() < 2) reject(c, "needs at least two dimensions, got " + c.in[0].shape().str());
  return same_spec(c);
}

Tensors reshaped_back(const Backward& b) { return {reshape(b.grads[0], to_list(b.shape(0)))}; }

using Ints = std::vector<int64_t>;
Sample one(const Shape& shape, Attrs attrs) { return {{sample(shape)}, std::move(attrs)}; }

constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();

}  // namespace

const Op kTranspose{.name = "transpose",
                    .text = "Two dimensions swapped. A view.",
                    .attrs = {{"dim0", 0}, {"dim1", 1}},
                    .view = transpose_view,
                    .gradient = [](const Backward& b) -> Tensors {
                      return {transpose(b.grads[0], b.attrs.integer("dim0"), b.attrs.integer("dim1"))};
                    },
                    .samples = []() -> std::vector<Sample> {
                      return {one({2, 3, 4}, {{"dim0", 0}, {"dim1", -1}}), one({3, 0}, {})};
                    }};

const Op kPermute{.name = "permute",
                  .text = "The dimensions in another order. A view.",
                  .attrs = {{"dims", Ints{}}},
                  .view = permute_view,
                  .gradient = [](const Backward& b) -> Tensors {
                    const Call c{b.op, {}, b.attrs};
                    Ints back(static_cast<size_t>(b.shape(0).rank()));
                    int64_t i = 0;
                    for (int d : permutation(c, b.shape(0))) back[static_cast<size_t>(d)] = i++;
                    return {permute(b.grads[0], back)};
                  },
                  .samples = []() -> std::vector<Sample> {
                    return {one({2, 3, 4}, {{"dims", Ints{2, 0, -2}}})};
                  }};

const Op kReshape{.name = "reshape",
                  .text = "The elements in another shape; one size may be -1.",
                  .attrs = {{"shape", Ints{}}},
                  .view = reshape_view,
                  .gradient = reshaped_back,
                  .samples = []() -> std::vector<Sample> {
                    return {one({2, 3, 4}, {{"shape", Ints{3, -1}}}), one({2, 3, 4}, {{"shape", Ints{24}}}),
                            one({1}, {{"shape", Ints{}}}), one({0, 3}, {{"shape", Ints{3, 0, 2}}})};
                  }};

const Op kExpand{.name = "expand",
                 .text = "Dimensions of size 1 repeated without a copy. A view.",
                 .attrs = {{"shape", Ints{}}},
                 .view = expand_view,
                 .gradient = [](const Backward& b) -> Tensors { return {sum_to(b.grads[0], b.shape(0))}; },
                 .samples = []() -> std::vector<Sample> {
                   return {one({3, 1}, {{"shape", Ints{2, 3, 4}}}), one({3, 1}, {{"shape", Ints{-1, 2}}}),
                           one({}, {{"shape", Ints{3}}})};
                 }};

const Op kSlice{.name = "slice",
                .text = "The elements start, start + step, ... before stop along dim. A view.",
                .attrs = {{"dim", 0}, {"start", 0}, {"stop", kEnd}, {"step", 1}},
                .view = slice_view,
                .gradient = [](const Backward& b) -> Tensors {
                  Attrs attrs = b.attrs;
                  attrs.add({"shape", to_list(b.shape(0))});
                  return {apply1(kSliceGrad, {b.grads[0]}, std::move(attrs))};
                },
                .samples = []() -> std::vector<Sample> {
                  return {one({2, 6, 3}, {{"dim", 1}, {"start", 1}, {"stop", 6}, {"step", 2}}),
                          one({4}, {{"start", -2}}), one({4, 2}, {{"start", 3}, {"stop", 1}})};
                }};

const Op kSliceGrad{
    .name = "slice_grad",
    .inputs = "grad",
    .text = "Gradient of slice.",
    .internal = true,
    .attrs = {{"dim", 0}, {"start", 0}, {"stop", kEnd}, {"step", 1}, {"shape", Ints{}}},
    .shape = slice_grad_spec,
    .gradient = [](const Backward& b) -> Tensors {
      return {slice(b.grads[0], b.attrs.integer("dim"), b.attrs.integer("start"), b.attrs.integer("stop"),
                    b.attrs.integer("step"))};
    },
    .takes_half = true,
    .samples = []() -> std::vector<Sample> {
      return {one({2, 3, 3}, {{"dim", 1}, {"start", 1}, {"stop", 6}, {"step", 2}, {"shape", Ints{2, 6, 3}}})};
    }};

const Op kSqueeze{.name = "squeeze",
                  .text = "Without dimension dim, if it has size 1.",
                  .internal = true,
                  .attrs = {{"dim", 0}},
                  .view = squeeze_view,
                  .gradient = reshaped_back,
                  .samples = []() -> std::vector<Sample> {
                    return {one({3, 1, 2}, {{"dim", 1}})};
                  }};

const Op kUnsqueeze{.name = "unsqueeze",
                    .text = "With a dimension of size 1 before dim. A view.",
                    .attrs = {{"dim", 0}},
                    .view = unsqueeze_view,
                    .gradient = reshaped_back,
                    .samples = []() -> std::vector<Sample> {
                      return {one({3, 2}, {{"dim", -1}}), one({}, {})};
                    }};

const Op kClone{.name = "clone",
                .text = "A contiguous copy.",
                .shape = same_spec,
                .gradient = [](const Backward& b) -> Tensors { return {b.grads[0]}; },
                .takes_half = true,
                .samples = []() -> std::vector<Sample> {
                  return {one({3, 2}, {})};
                }};

const Op kTo{.name = "to",
             .text = "The elements as another dtype, given by its name.",
             .internal = true,  // the function gives a tensor of that dtype as it is
             .attrs = {{"dtype", "float32"}},
             .shape = to_spec,
             .gradient = [](const Backward& b) -> Tensors { return {to(b.grads[0], b.in_specs[0].dtype)}; },
             .takes_half = true,
             .samples = []() -> std::vector<Sample> {
               return {one({3, 2}, {{"dtype", "float64"}}), one({3}, {{"dtype", "int64"}})};
             }};

// A view, so that the results are its own to make, on another device than that of the inputs.
const Op kToDevice{
    .name = "to_device",
    .text = "The elements on another device, given by its name.",
    .internal = true,
    .attrs = {{"device", "cpu"}, {"from", "cpu"}},
    .view = [](const Call& c) -> Tensors {
      const Tensor& x = c.in[0];
      if (Device(c.attrs.text("from")) != x.device())
        reject(c, x.summary() + " is not on " + c.attrs.text("from"));
      const Tensor there = x.data_on(Device(c.attrs.text("device")));
      return {there.is_same(x) ? x.clone_data() : there};
    },
    .gradient = [](const Backward& b) -> Tensors { return {to(b.grads[0], Device(b.attrs.text("from")))}; },
    .samples = []() -> std::vector<Sample> {
      return {one({3, 2}, {}), one({}, {})};
    }};

const Op kFlip{
    .name = "flip",
    .text = "The elements in reverse order along dims.",
    .attrs = {{"dims", Ints{}}},
    .shape = flip_spec,
    .gradient = [](const Backward& b) -> Tensors { return {flip(b.grads[0], b.attrs.ints("dims"))}; },
    .takes_half = true,
    .samples = []() -> std::vector<Sample> {
      return {one({3, 4}, {{"dims", Ints{1}}}), one({2, 3, 2}, {{"dims", Ints{0, -1}}})};
    }};

const Op kTril{
    .name = "tril",
    .text = "What is on and below the diagonal, and zeros above.",
    .attrs = {{"diagonal", 0}},
    .shape = tril_spec,
    .gradient = [](const Backward& b) -> Tensors { return {tril(b.grads[0], b.attrs.integer("diagonal"))}; },
    .takes_half = true,
    .samples = []() -> std::vector<Sample> {
      return {one({3, 4}, {}), one({2, 3, 3}, {{"diagonal", -1}})};
    }};

const Op kTriu{
    .name = "triu",
    .text = "What is on and above the diagonal, and zeros below.",
    .attrs = {{"diagonal", 0}},
    .shape = tril_spec,
    .gradient = [](const Backward& b) -> Tensors { return {triu(b.grads[0], b.attrs.integer("diagonal"))}; },
    .takes_half = true,
    .samples = kTril.samples};

Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1) {
  return apply1(kTranspose, {x}, {{"dim0", dim0}, {"dim1", dim1}});
}
Tensor permute(const Tensor& x, const IntList& dims) { return apply1(kPermute, {x}, {{"dims", dims}}); }
Tensor reshape(const Tensor& x, const IntList& shape) { return apply1(kReshape, {x}, {{"shape", shape}}); }
Tensor expand(const Tensor& x, const IntList& shape) { return apply1(kExpand, {x}, {{"shape", shape}}); }
Tensor slice(const Tensor& x, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> stop,
             int64_t step) {
  return apply1(kSlice, {x},
                {{"dim", dim}, {"start", start.value_or(0)}, {"stop", stop.value_or(kEnd)}, {"step", step}});
}
Tensor squeeze(const Tensor& x, int64_t dim) { return apply1(kSqueeze, {x}, {{"dim", dim}}); }
Tensor unsqueeze(const Tensor& x, int64_t dim) { return apply1(kUnsqueeze, {x}, {{"dim", dim}}); }
Tensor clone(const Tensor& x) { return apply1(kClone, {x}); }
Tensor contiguous(const Tensor& x) { return x.defined() && x.is_contiguous() ? x : clone(x); }
Tensor to(const Tensor& x, DType dtype) {
  return x.defined() && x.dtype() == dtype ? x : apply1(kTo, {x}, {{"dtype", std::string(name(dtype))}});
}
Tensor to(const Tensor& x, Device device) {
  if (x.defined() && x.device() == device) return x;
  return apply1(kToDevice, {x}, {{"device", device.str()}, {"from", x.defined() ? x.device().str() : "cpu"}});
}
Tensor flip(const Tensor& x, const IntList& dims) { return apply1(kFlip, {x}, {{"dims", dims}}); }
Tensor tril(const Tensor& x, int64_t diagonal) { return apply1(kTril, {x}, {{"diagonal", diagonal}}); }
Tensor triu(const Tensor& x, int64_t diagonal) { return apply1(kTriu, {x}, {{"diagonal", diagonal}}); }

}  // namespace troupe::ops
