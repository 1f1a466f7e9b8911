// Functions by name of images and lines, of order, and the losses of triples and sequences.
#include "core/base/error.h"
#include "ops/dispatch/promote.h"
#include "ops/function_table.h"
#include "ops/ops.h"

namespace troupe::ops::internal {
namespace {

// One number, or one for the height and one for the width.
Pair sides(const char* what, const Shape& given) {
  if (given.rank() == 1) return {given[0], given[0]};
  if (given.rank() == 2) return {given[0], given[1]};
  throw_invalid(std::string(what) + " takes one number or two, got " + given.str());
}
int64_t side(const char* what, const Shape& given) {
  if (given.rank() == 1) return given[0];
  throw_invalid(std::string(what) + " takes one number, got " + given.str());
}
// Sizes, of which none stands for the one that is there.
IntList sizes_of(const Value& given) {
  IntList out;
  const auto take = [&](const Value& v) { out.push_back(v.is_null() ? -1 : Codec<int64_t>::from(v)); };
  if (const auto* list = given.get_if<ValueList>())
    for (const Value& v : *list) take(v);
  else
    take(given);
  return out;
}
// Padding is a word or widths.
bool is_same(const char* op, const Value& padding, bool steps_by_one) {
  const auto* word = padding.get_if<std::string>();
  if (!word || *word == "valid") return false;
  if (*word != "same")
    throw_invalid(std::string("[") + op + "] padding must be \"same\", \"valid\" or numbers, got \"" + *word +
                  "\"");
  if (!steps_by_one) throw_invalid(std::string("[") + op + "] padding \"same\" is for stride 1");
  return true;
}
Shape widths_of(const Value& padding) {
  return padding.get_if<std::string>() ? Shape{0} : Codec<Shape>::from(padding);
}
ValueList both(const ValuesAndIndices& found) { return {found.values, found.indices}; }
Parameter one(const char* name) { return with(name, Shape{1}); }
Parameter zero(const char* name) { return with(name, Shape{0}); }

void add_conv2d(Table& t) {
  add(
      t, "conv2d",
      [](Tensor x, Tensor weight, Tensor bias, Shape stride, Value padding, Shape dilation, int64_t groups) {
        const Pair by = sides("stride", stride), apart = sides("dilation", dilation);
        if (is_same("conv2d", padding, by == Pair{1, 1})) return conv2d_same(x, weight, bias, apart, groups);
        return conv2d(x, weight, bias, by, sides("padding", widths_of(padding)), apart, groups);
      },
      {{"input"},
       {"weight"},
       none("bias"),
       one("stride"),
       zero("padding"),
       one("dilation"),
       with("groups", 1)},
      "Convolution of images [N, C, H, W] with kernels [O, C / groups, h, w]; padding: \"same\", \"valid\", "
      "too.");
}

void add_convolutions(Table& t) {
  add_conv2d(t);
  add(
      t, "conv1d",
      [](Tensor x, Tensor weight, Tensor bias, Shape stride, Value padding, Shape dilation, int64_t groups) {
        const int64_t by = side("stride", stride), apart = side("dilation", dilation);
        if (is_same("conv1d", padding, by == 1)) return conv1d_same(x, weight, bias, apart, groups);
        return conv1d(x, weight, bias, by, side("padding", widths_of(padding)), apart, groups);
      },
      {{"input"},
       {"weight"},
       none("bias"),
       one("stride"),
       zero("padding"),
       one("dilation"),
       with("groups", 1)},
      "Convolution of lines [N, C, L] with kernels [O, C / groups, k]; padding: \"same\", \"valid\", too.");
  add(
      t, "conv_transpose1d",
      [](Tensor x, Tensor weight, Tensor bias, Shape stride, Shape padding, Shape output_padding,
         int64_t groups, Shape dilation) {
        return conv_transpose1d(x, weight, bias, side("stride", stride), side("padding", padding),
                                side("output_padding", output_padding), groups, side("dilation", dilation));
      },
      {{"input"},
       {"weight"},
       none("bias"),
       one("stride"),
       zero("padding"),
       zero("output_padding"),
       with("groups", 1),
       one("dilation")},
      "The transposed convolution of lines [N, C, L] with kernels [C, O / groups, k].");
  add(
      t, "conv_transpose2d",
      [](Tensor x, Tensor weight, Tensor bias, Shape stride, Shape padding, Shape output_padding,
         int64_t groups, Shape dilation) {
        return conv_transpose2d(x, weight, bias, sides("stride", stride), sides("padding", padding),
                                sides("output_padding", output_padding), groups, sides("dilation", dilation));
      },
      {{"input"},
       {"weight"},
       none("bias"),
       one("stride"),
       zero("padding"),
       zero("output_padding"),
       with("groups", 1),
       one("dilation")},
      "The transposed convolution of images [N, C, H, W] with kernels [C, O / groups, h, w].");
}

void add_conv3d(Table& t) {
  const auto triple = [](const char* what, const Shape& given) -> Triple {
    if (given.rank() == 1) return {given[0], given[0], given[0]};
    if (given.rank() == 3) return {given[0], given[1], given[2]};
    throw_invalid(std::string(what) + " takes one number or three, got " + given.str());
  };
  add(
      t, "conv3d",
      [triple](Tensor x, Tensor weight, Tensor bias, Shape stride, Value padding, Shape dilation,
               int64_t groups) {
        const Triple by = triple("stride", stride), apart = triple("dilation", dilation);
        if (is_same("conv3d", padding, by == Triple{1, 1, 1}))
          return conv3d_same(x, weight, bias, apart, groups);
        return conv3d(x, weight, bias, by, triple("padding", widths_of(padding)), apart, groups);
      },
      {{"input"},
       {"weight"},
       none("bias"),
       one("stride"),
       zero("padding"),
       one("dilation"),
       with("groups", 1)},
      "Convolution of volumes [N, C, D, H, W] with kernels [O, C / groups, d, h, w]; padding: \"same\", "
      "\"valid\", too.");
}

void add_pools(Table& t) {
  const auto stride_of = [](const Shape& stride) {
    return stride.empty() ? std::nullopt : std::optional(sides("stride", stride));
  };
  add(
      t, "max_pool2d",
      [stride_of](Tensor x, Shape kernel_size, Shape stride, Shape padding, Shape dilation, bool ceil_mode,
                  bool return_indices) -> Value {
        const Pair kernel = sides("kernel_size", kernel_size), around = sides("padding", padding),
                   apart = sides("dilation", dilation);
        if (!return_indices)
          return max_pool2d(x, kernel, stride_of(stride), around, MaxPoolForm{apart, ceil_mode});
        return both(max_pool2d_with_indices(x, kernel, stride_of(stride), around, apart, ceil_mode));
      },
      {{"input"},
       {"kernel_size"},
       with("stride", Shape()),
       zero("padding"),
       one("dilation"),
       with("ceil_mode", false),
       with("return_indices", false)},
      "The largest element of each window of images, and where in the image it is.");
  add(
      t, "avg_pool2d",
      [stride_of](Tensor x, Shape kernel_size, Shape stride, Shape padding, bool ceil_mode,
                  bool count_include_pad, std::optional<int64_t> divisor_override) {
        return avg_pool2d(x, sides("kernel_size", kernel_size), stride_of(stride), sides("padding", padding),
                          AvgPoolForm{ceil_mode, count_include_pad, divisor_override});
      },
      {{"input"},
       {"kernel_size"},
       with("stride", Shape()),
       zero("padding"),
       with("ceil_mode", false),
       with("count_include_pad", true),
       none("divisor_override")},
      "The mean of each window of images.");
}

void add_columns(Table& t) {
  add(
      t, "unfold",
      [](Tensor x, Shape kernel_size, Shape dilation, Shape padding, Shape stride) {
        return unfold(x, sides("kernel_size", kernel_size), sides("dilation", dilation),
                      sides("padding", padding), sides("stride", stride));
      },
      {{"input"}, {"kernel_size"}, one("dilation"), zero("padding"), one("stride")},
      "Windows of images as columns: [N, C, H, W] -> [N, C h w, windows].");
  add(
      t, "fold",
      [](Tensor x, Shape output_size, Shape kernel_size, Shape dilation, Shape padding, Shape stride) {
        return fold(x, sides("output_size", output_size), sides("kernel_size", kernel_size),
                    sides("dilation", dilation), sides("padding", padding), sides("stride", stride));
      },
      {{"input"}, {"output_size"}, {"kernel_size"}, one("dilation"), zero("padding"), one("stride")},
      "Columns of windows, added up where they were in images: [N, C h w, windows] -> [N, C, H, W].");
}

void add_sizes(Table& t) {
  add(t, "pixel_shuffle", &pixel_shuffle, {{"input"}, {"upscale_factor"}},
      "Channels as pixels between the others: [.., C r r, H, W] -> [.., C, H r, W r].");
  add(t, "pixel_unshuffle", &pixel_unshuffle, {{"input"}, {"downscale_factor"}},
      "Pixels as channels: [.., C, H r, W r] -> [.., C r r, H, W].");
  add(
      t, "interpolate",
      [](Tensor x, std::optional<Shape> size, Value scale_factor, std::string mode,
         std::optional<bool> align_corners, std::optional<bool> recompute_scale_factor, bool antialias) {
        std::vector<double> factors;
        if (const auto* list = scale_factor.get_if<ValueList>())
          for (const Value& v : *list) factors.push_back(Codec<double>::from(v));
        else if (!scale_factor.is_null())
          factors.push_back(Codec<double>::from(scale_factor));
        return interpolate(x, size ? std::optional(IntList(*size)) : std::nullopt, factors, mode,
                           align_corners, recompute_scale_factor.value_or(false), antialias);
      },
      {{"input"},
       none("size"),
       none("scale_factor"),
       with("mode", std::string("nearest")),
       none("align_corners"),
       none("recompute_scale_factor"),
       with("antialias", false)},
      "Lines, images or volumes [N, C, ..] in another size; mode: how elements between others are made.");
  add(
      t, "adaptive_avg_pool1d",
      [](Tensor x, Shape size) { return adaptive_avg_pool1d(x, side("output_size", size)); },
      {{"input"}, {"output_size"}}, "Means over as many windows as output_size says.");
  add(
      t, "adaptive_max_pool1d",
      [](Tensor x, Shape size, bool return_indices) -> Value {
        const int64_t parts = side("output_size", size);
        if (!return_indices) return adaptive_max_pool1d(x, parts);
        return both(adaptive_max_pool1d_with_indices(x, parts));
      },
      {{"input"}, {"output_size"}, with("return_indices", false)},
      "The largest elements of as many windows as output_size says, and their places.");
  add(
      t, "adaptive_avg_pool2d", [](Tensor x, Value size) { return adaptive_avg_pool2d(x, sizes_of(size)); },
      {{"input"}, {"output_size"}}, "Means over as many windows as output_size says.");
  add(
      t, "adaptive_max_pool2d",
      [](Tensor x, Value size, bool return_indices) -> Value {
        if (!return_indices) return adaptive_max_pool2d(x, sizes_of(size));
        return both(adaptive_max_pool2d_with_indices(x, sizes_of(size)));
      },
      {{"input"}, {"output_size"}, with("return_indices", false)},
      "The largest elements of as many windows as output_size says, and their places.");
}

void add_instance_norm(Table& t) {
  add(t, "instance_norm",
      static_cast<Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, bool,
                             double, double)>(&instance_norm),
      {{"input"},
       none("running_mean"),
       none("running_var"),
       none("weight"),
       none("bias"),
       with("use_input_stats", true),
       with("momentum", 0.1),
       with("eps", 1e-5)},
      "Normalizes each channel of each sample; running statistics move, or are used instead.");
}

void add_losses_of_several(Table& t) {
  add(t, "pairwise_distance", &pairwise_distance,
      {{"x1"}, {"x2"}, with("p", 2.0), with("eps", 1e-6), with("keepdim", false)},
      "The p-norm of x1 - x2 + eps over the last dimension.");
  add(t, "triplet_margin_loss", &triplet_margin_loss,
      {{"anchor"},
       {"positive"},
       {"negative"},
       with("margin", 1.0),
       with("p", 2.0),
       with("eps", 1e-6),
       with("swap", false),
       with("reduction", std::string("mean"))},
      "How much less than margin anchors are nearer to positives than to negatives.");
  add(t, "ctc_loss", &ctc_loss,
      {{"log_probs"},
       {"targets"},
       {"input_lengths"},
       {"target_lengths"},
       with("blank", 0),
       with("reduction", std::string("mean")),
       with("zero_infinity", false)},
      "Connectionist temporal classification of log-probabilities [T, N, C].");
}

}  // namespace

void add_windows(Table& t) {
  add_convolutions(t);
  add_conv3d(t);
  add_pools(t);
  add_columns(t);
  add_sizes(t);
  add_instance_norm(t);
  add_losses_of_several(t);
}

namespace {

void add_places_in_order(Table& t) {
  const auto narrowed = [](const Tensor& places, bool out_int32) {
    return out_int32 ? to(places, int32) : places;
  };
  add(
      t, "searchsorted",
      [narrowed](Tensor line, Operand values, bool out_int32, bool right, std::optional<std::string> side,
                 Tensor sorter) {
        if (side && *side != "left" && *side != "right")
          throw_invalid("[searchsorted] side must be \"left\" or \"right\", got \"" + *side + "\"");
        if (right && side == "left")
          throw_invalid("[searchsorted] got right and side \"left\": leave one out");
        const bool behind = right || side == "right";
        if (const auto* several = std::get_if<Tensor>(&values.value))
          return narrowed(searchsorted(line, *several, behind, sorter), out_int32);
        const Tensor one = wrapped(std::get<Scalar>(values.value), line.dtype(), line.device());
        return narrowed(searchsorted(line, one, behind, sorter), out_int32);
      },
      {{"sorted_sequence"},
       {"input"},
       with("out_int32", false),
       with("right", false),
       none("side"),
       none("sorter")},
      "Where the elements of input would stand in sorted lines; right: behind equal ones.");
  add(
      t, "bucketize",
      [narrowed](Tensor values, Tensor boundaries, bool out_int32, bool right) {
        return narrowed(bucketize(values, boundaries, right), out_int32);
      },
      {{"input"}, {"boundaries"}, with("out_int32", false), with("right", false)},
      "Between which boundaries [n] the elements are; right: those that equal one are in front of it.");
  add(
      t, "unique",
      [](Tensor x, bool, bool return_inverse, bool return_counts,  // it is sorted in any case
         std::optional<int64_t> dim) -> Value {
        Unique u = unique(x, dim);
        if (!return_inverse && !return_counts) return u.values;
        ValueList out{u.values};
        if (return_inverse) out.emplace_back(u.inverse);
        if (return_counts) out.emplace_back(u.counts);
        return out;
      },
      {{"input"},
       with("sorted", true),
       with("return_inverse", false),
       with("return_counts", false),
       none("dim")},
      "The distinct elements, or slices along dim, in order; also the place of each element among them, and "
      "how often each "
      "occurs.");
}

}  // namespace

void add_order(Table& t) {
  add(t, "cummax", &cummax, {{"input"}, {"dim"}},
      "The largest of the first elements along dim, and their places.");
  add(t, "cummin", &cummin, {{"input"}, {"dim"}},
      "The smallest of the first elements along dim, and their places.");
  add(t, "kthvalue", &kthvalue, {{"input"}, {"k"}, with("dim", -1), with("keepdim", false)},
      "The k-th smallest elements along dim, and their places.");
  add(
      t, "quantile",
      [](Tensor x, Operand q, std::optional<int64_t> dim, bool keepdim, std::string interpolation) {
        if (const auto* several = std::get_if<Tensor>(&q.value))
          return quantile(x, *several, dim, keepdim, interpolation);
        return quantile(x, std::get<Scalar>(q.value).to<double>(), dim, keepdim, interpolation);
      },
      {{"input"}, {"q"}, none("dim"), with("keepdim", false), with("interpolation", std::string("linear"))},
      "Where q, in [0, 1], cuts the sorted elements along dim (none: all).");
  add_places_in_order(t);
}

}  // namespace troupe::ops::internal
