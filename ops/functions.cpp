// The functions by name that are no operators: views, values, logic and products.
#include "ops/function_catalog.h"
#include "ops/function_table.h"
#include "ops/ops.h"

namespace troupe::ops {
namespace {

using namespace internal;

void add_geometry(Table& t) {
  add(
      t, "view", [](Tensor x, Shape shape) { return view(x, listed(shape)); }, {{"input"}, {"shape"}},
      "The elements in another shape, without a copy.");
  add(t, "to", static_cast<Tensor (*)(const Tensor&, DType)>(&to), {{"input"}, {"dtype"}},
      "The elements as another dtype; a tensor that has it already as it is.");
  add(
      t, "to_device", [](Tensor x, std::string device) { return to(x, Device(device)); },
      {{"input"}, {"device"}},
      "The elements on a device (\"cpu\", \"cuda:0\"); a tensor that is there already as it is.");
  add(t, "flatten", &flatten, {{"input"}, with("start_dim", 0), with("end_dim", -1)},
      "Dimensions start_dim to end_dim in one.");
  add(t, "select", &select, {{"input"}, {"dim"}, {"index"}},
      "Slice number index along dim, without that dimension. A view.");
  add(t, "narrow", &narrow, {{"input"}, {"dim"}, {"start"}, {"length"}},
      "The elements start, ..., start + length - 1 along dim. A view.");
  add(t, "unbind", &unbind, {{"input"}, with("dim", 0)}, "Every slice along dim. Views.");
  add(t, "t", &ops::t, {{"input"}}, "A matrix with its dimensions swapped. A view.");
  add(
      t, "split",
      [](Tensor x, Value size, int64_t dim) {
        if (const auto* one = size.get_if<int64_t>()) return split(x, *one, dim);
        return split(x, Codec<std::vector<int64_t>>::from(std::move(size)), dim);
      },
      {{"input"}, {"split_size"}, with("dim", 0)},
      "Consecutive pieces along dim, of one size or of a list of sizes. Views.");
  add(t, "chunk", &chunk, {{"input"}, {"chunks"}, with("dim", 0)},
      "At most so many pieces along dim, as large as each other but for the last. Views.");
  add(t, "contiguous", &contiguous, {{"input"}}, "The tensor itself if contiguous, else a contiguous copy.");
  add(
      t, "detach", [](Tensor x) { return x.detach(); }, {{"input"}}, "The same elements, without history.");
  add(
      t, "diff",
      [](Tensor x, int64_t n, int64_t dim, std::optional<Tensor> prepend, std::optional<Tensor> append) {
        if (n == 0 || (!prepend && !append)) return diff(x, n, dim);
        Tensors parts{x};
        if (prepend) parts.insert(parts.begin(), *prepend);
        if (append) parts.push_back(*append);
        return diff(cat(parts, dim), n, dim);
      },
      {{"input"}, with("n", 1), with("dim", -1), none("prepend"), none("append")},
      "Differences of neighbours along dim, n times over.");
}

// One of all elements, or those along a dimension with their places.
template <class All, class Along>
void add_extremum(Table& t, const char* name, All all, Along along, const char* text) {
  add(
      t, name,
      [all, along](Tensor x, std::optional<int64_t> dim, bool keepdim) -> Value {
        if (dim) return troupe::internal::to_value(along(x, *dim, keepdim));
        if (keepdim) throw_invalid("keepdim needs dim");
        return all(x);
      },
      {{"input"}, none("dim"), with("keepdim", false)}, text);
}

void add_logic(Table& t) {
  add(t, "isinf", &isinf, {{"input"}}, "Whether each element is infinite.");
  const auto of_bools = [&](const char* name, auto f, const char* text) {
    add(
        t, name,
        [f](Operand a, Operand b) {  // they commute
          if (!std::holds_alternative<Tensor>(a.value)) std::swap(a, b);
          if (!std::holds_alternative<Tensor>(a.value)) throw_invalid("needs a tensor, got two numbers");
          return std::visit([&](const auto& other) { return f(std::get<Tensor>(a.value), other); }, b.value);
        },
        {{"input"}, {"other"}}, text);
  };
  of_bools(
      "bitwise_and", [](const Tensor& a, const auto& b) { return bitwise_and(a, b); },
      "Whether both of each two bools are true.");
  of_bools(
      "bitwise_or", [](const Tensor& a, const auto& b) { return bitwise_or(a, b); },
      "Whether one of each two bools is true.");
  of_bools(
      "bitwise_xor", [](const Tensor& a, const auto& b) { return bitwise_xor(a, b); },
      "Whether each two bools differ.");
  add(t, "bitwise_not", &bitwise_not, {{"input"}}, "Whether each bool is false.");
  add(t, "allclose", &allclose,
      {{"input"}, {"other"}, with("rtol", 1e-5), with("atol", 1e-8), with("equal_nan", false)},
      "Whether |input - other| <= atol + rtol |other| everywhere.");
  add(t, "equal", &equal, {{"input"}, {"other"}}, "Whether shape and elements agree.");
  add(
      t, "masked_fill",
      [](Tensor x, Tensor mask, Operand value) {
        return std::visit([&](const auto& v) { return masked_fill(x, mask, v); }, value.value);
      },
      {{"input"}, {"mask"}, {"value"}}, "input, with value where mask is true.");
}

void add_products(Table& t) {
  add(t, "mm", &mm, {{"input"}, {"mat2"}}, "The product of two matrices.");
  add(t, "bmm", &bmm, {{"input"}, {"mat2"}}, "The products of two batches of matrices.");
  add(t, "mv", &mv, {{"input"}, {"vec"}}, "The product of a matrix and a vector.");
  add(t, "dot", &dot, {{"input"}, {"other"}}, "The sum of products of two vectors.");
  add(t, "einsum", &einsum, {{"equation"}, {"operands"}},
      "Sums of products by a formula of letters: einsum(\"ij,jk->ik\", {a, b}).");
  add(
      t, "addcmul", [](Tensor x, Tensor a, Tensor b, Scalar value) { return addcmul(x, a, b, value); },
      {{"input"}, {"tensor1"}, {"tensor2"}, with("value", Scalar(1))}, "input + value tensor1 tensor2.");
  add(
      t, "addcdiv", [](Tensor x, Tensor a, Tensor b, Scalar value) { return addcdiv(x, a, b, value); },
      {{"input"}, {"tensor1"}, {"tensor2"}, with("value", Scalar(1))}, "input + value tensor1 / tensor2.");
  add(
      t, "lerp",
      [](Tensor x, Tensor end, Operand weight) {
        return std::visit([&](const auto& w) { return lerp(x, end, w); }, weight.value);
      },
      {{"input"}, {"end"}, {"weight"}}, "input + weight (end - input).");
}

void add_losses(Table& t) {
  const Parameter mean = with("reduction", std::string("mean")), ignored = with("ignore_index", -100);
  add(
      t, "cross_entropy",
      [](Tensor x, Tensor target, Tensor weight, std::string reduction, int64_t ignore_index,
         double label_smoothing) {
        return cross_entropy(x, target, weight, reduction, ignore_index, label_smoothing);
      },
      {{"input"}, {"target"}, none("weight"), mean, ignored, with("label_smoothing", 0.0)},
      "Loss of scores for classes, or for distributions over them; weight: of each class.");
  add(
      t, "nll_loss",
      [](Tensor x, Tensor target, Tensor weight, std::string reduction, int64_t ignore_index) {
        return nll_loss(x, target, weight, reduction, ignore_index);
      },
      {{"input"}, {"target"}, none("weight"), mean, ignored},
      "Loss of log-probabilities for classes; weight: of each class.");
  add(
      t, "binary_cross_entropy_with_logits",
      [](Tensor x, Tensor target, Tensor weight, Tensor pos_weight, std::string reduction) {
        return binary_cross_entropy_with_logits(x, target, weight, pos_weight, reduction);
      },
      {{"input"}, {"target"}, none("weight"), none("pos_weight"), mean},
      "Loss of scores for probabilities in [0, 1]; pos_weight: what a target of 1 counts.");
}

void add_extrema(Table& t) {
  const auto both = []<class F>(F f) { return f; };
  add_extremum(t, "max", both([](const Tensor& x) { return max(x); }),
               both([](const Tensor& x, int64_t dim, bool keep) { return max(x, dim, keep); }),
               "The largest element; with dim the largest ones along it, and their places.");
  add_extremum(t, "min", both([](const Tensor& x) { return min(x); }),
               both([](const Tensor& x, int64_t dim, bool keep) { return min(x, dim, keep); }),
               "The smallest element; with dim the smallest ones along it, and their places.");
  add_extremum(t, "median", both([](const Tensor& x) { return median(x); }),
               both([](const Tensor& x, int64_t dim, bool keep) { return median(x, dim, keep); }),
               "The middle element; with dim the middle ones along it, and their places.");
  add_extremum(t, "argmax", both([](const Tensor& x) { return argmax(x); }),
               both([](const Tensor& x, int64_t dim, bool keep) { return argmax(x, dim, keep); }),
               "The place of the largest element; with dim those along it.");
  add_extremum(t, "argmin", both([](const Tensor& x) { return argmin(x); }),
               both([](const Tensor& x, int64_t dim, bool keep) { return argmin(x, dim, keep); }),
               "The place of the smallest element; with dim those along it.");
}

void add_values(Table& t) {
  add_extrema(t);
  add(
      t, "count_nonzero", [](Tensor x, Shape dim) { return count_nonzero(x, dim); },
      {{"input"}, with("dim", Shape())}, "How many elements over dim (none: all dimensions) are not 0.");
  add(t, "outer", &outer, {{"input"}, {"vec2"}}, "The products of each two elements of two vectors.");
  add(
      t, "dropout", [](Tensor x, double p, bool training) { return dropout(x, p, training); },
      {{"input"}, with("p", 0.5), with("training", true)},
      "Zeros with probability p, and the rest divided by 1 - p.");
  add(
      t, "pad",
      [](Tensor x, Shape pad, std::string mode, Scalar value) { return ops::pad(x, pad, mode, value); },
      {{"input"}, {"pad"}, with("mode", std::string("constant")), with("value", Scalar(0))},
      "value around input; pad: {before, after} of the last dimension, of the one before, ..");
  add(t, "one_hot", &one_hot, {{"input"}, with("num_classes", -1)},
      "int64 of 0, with a 1 at each number in [0, num_classes); of -1 classes, as many as input has.");
  add(t, "bincount", &bincount, {{"input"}, none("weights"), with("minlength", 0)},
      "How often each number from 0 on occurs, or the sum of its weights.");
  add(
      t, "rms_norm",
      [](Tensor x, Shape shape, Tensor weight, std::optional<double> eps) {
        return rms_norm(x, shape, weight, eps);
      },
      {{"input"}, {"normalized_shape"}, none("weight"), none("eps")},
      "Divides by the root mean square over the last dimensions, which have this shape.");
  add(t, "group_norm",
      static_cast<Tensor (*)(const Tensor&, int64_t, const Tensor&, const Tensor&, double)>(&group_norm),
      {{"input"}, {"num_groups"}, none("weight"), none("bias"), with("eps", 1e-5)},
      "Normalizes each group of channels of each sample.");
  add(t, "embedding_bag", &embedding_bag,
      {{"input"},
       {"weight"},
       none("offsets"),
       with("mode", std::string("mean")),
       none("per_sample_weights"),
       with("include_last_offset", false),
       none("padding_idx")},
      "Sums, means or the largest (mode \"max\") of the rows of weight that bags of numbers name.");
  add_logic(t);
  add_products(t);
  add_losses(t);
  add(
      t, "layer_norm",
      [](Tensor x, Shape shape, Tensor weight, Tensor bias, double eps) {
        return layer_norm(x, shape, weight, bias, eps);
      },
      {{"input"}, {"normalized_shape"}, none("weight"), none("bias"), with("eps", 1e-5)},
      "Normalizes over the last dimensions, which have this shape.");
}

Table make_table() {
  Table t;
  add_geometry(t);
  add_values(t);
  add_arrangement(t);
  add_computation(t);
  add_windows(t);
  add_matrices(t);
  add_order(t);
  add_creation(t);
  add_in_place(t);
  return t;
}

}  // namespace

std::span<const Maker<Value>> functions() {
  static const Table all = make_table();
  return all;
}

}  // namespace troupe::ops
