#include "ops/batch_norm.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/gradient_rules.h"
#include "ops/reduce.h"
#include "ops/unary.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

// x [N, C, ...] and, from input `first` on, one number per channel. Beside halves these may be float32, as
// statistics are.
void check_numbers(const Call& c, size_t first, std::initializer_list<const char*> names) {
  const Tensor& x = c.in[0];
  require_floating(c, x);
  for (size_t i = 1; i < c.in.size(); ++i) {
    const DType t = c.in[i].dtype();
    if (t != x.dtype() && (i < first || t != compute_dtype(x.dtype()))) require_same_dtype(c);
  }
  if (x.dim() < 2) reject(c, "needs [N, C, ...], got " + x.shape().str());
  for (const char* name : names) {
    const Tensor& t = c.in[first++];
    if (t.shape() != Shape{x.shape()[1]})
      reject(c, fmt::format("{} must be [{}] for input {}, got {}", name, x.shape()[1], x.shape().str(),
                            t.shape().str()));
  }
}

void check_eps(const Call& c) {
  const double eps = c.attrs.number("eps");
  if (!(eps >= 0)) reject(c, fmt::format("eps must be at least 0, got {}", eps));
}

Spec like(const Tensor& t) { return {t.shape(), t.dtype()}; }

Specs train_spec(const Call& c) {
  check_numbers(c, 1, {"weight", "bias"});
  check_eps(c);
  const int64_t channels = c.in[0].shape()[1], together = c.attrs.integer("together");
  if (together < 1 || channels % together)
    reject(c, fmt::format("together must divide the {} channels of {}, got {}", channels,
                          c.in[0].shape().str(), together));
  const Spec statistic{{channels / together}, compute_dtype(c.in[0].dtype())};  // as logarithms of attention
  return {like(c.in[0]), statistic, statistic};
}
Specs affine_spec(const Call& c) {
  check_numbers(c, 1, {"center", "scale", "shift"});
  return {like(c.in[0])};
}
Specs sums_spec(const Call& c) {
  require_same_shape(c, c.in[0], c.in[1]);
  check_numbers(c, 2, {"center"});
  return {like(c.in[2]), like(c.in[2])};
}
Specs mix_spec(const Call& c) {
  require_same_shape(c, c.in[0], c.in[1]);
  check_numbers(c, 2, {"center", "a", "b", "c"});
  return {like(c.in[0])};
}

// One number per channel, shaped to broadcast against x.
Tensor per_channel(const Tensor& t, const Shape& x) {
  std::vector<int64_t> shape(static_cast<size_t>(x.rank() - 1), 1);
  shape[0] = x[1];
  return reshape(t, shape);
}
Tensor sum_channels(const Tensor& x) {
  std::vector<int64_t> dims;
  for (int i = 0; i < x.dim(); ++i)
    if (i != 1) dims.push_back(i);
  return sum(x, dims);
}
Tensor affine(const Tensor& x, const Tensor& center, const Tensor& scale, const Tensor& shift) {
  return apply1(kChannelAffine, {x, center, scale, shift});
}
Tensors sums_of(const Tensor& g, const Tensor& x, const Tensor& center) {
  return ops::apply(kChannelSums, std::array{g, x, center});
}

// With n elements in the channels of one mean, r = 1 / sqrt(var + eps), sums over all of these elements, and
// the gradients g, gm and gv of y, mean and var:
//   gx = r (w g - sum(w g) / n - (x - mean) r^2 sum(w g (x - mean)) / n) + gm / n + 2 gv (x - mean) / n
Tensors train_gradient(const Backward& b) {
  const Shape& shape = b.shape(0);
  const int64_t channels = shape[1], together = b.attrs.integer("together"), means = channels / together;
  const double n = means ? static_cast<double>(std::max<int64_t>(shape.numel() / means, 1)) : 1;
  const auto repeated = [&](const Tensor& t) {
    return together == 1 ? t : reshape(expand(reshape(t, {means, 1}), {means, together}), {channels});
  };
  const auto joined = [&](const Tensor& t) {
    return together == 1 ? t : sum(reshape(t, {means, together}), {1});
  };
  const Tensor &x = b.in[0], &g = b.grads[0], mean = repeated(b.out[1]), w = to(b.in[1], mean.dtype());
  const Tensor r = repeated(rsqrt(add(b.out[2], b.attrs.number("eps"))));
  const Tensors sums = sums_of(g, x, mean);
  Tensors out{{}, to(mul(sums[1], r), b.in_specs[1].dtype), to(sums[0], b.in_specs[2].dtype)};
  if (!b.needs(0)) return out;
  const Tensor a = mul(w, r), spread = joined(mul(mul(a, square(r)), sums[1]));
  const Tensor slope = mul(sub(mul(b.grads[2], 2.0), spread), 1 / n);
  const Tensor level = mul(sub(b.grads[1], joined(mul(a, sums[0]))), 1 / n);
  out[0] = apply1(kChannelMix, {g, x, mean, a, repeated(slope), repeated(level)});
  return out;
}

Tensors eval_of(const Call& c) {
  check_numbers(c, 1, {"weight", "bias", "mean", "var"});
  check_eps(c);
  const auto number = [&](size_t i) { return to(c.in[i], compute_dtype(c.in[0].dtype())); };
  const Tensor scale = mul(number(1), rsqrt(add(number(4), c.attrs.number("eps"))));
  return {affine(c.in[0], number(3), scale, number(2))};
}

// The channels of all samples as those of one, some of them together.
Tensors group_of(const Call& c) {
  const Tensor& x = c.in[0];
  check_numbers(c, 1, {"weight", "bias"});
  check_eps(c);
  const int64_t groups = c.attrs.integer("num_groups"), channels = x.shape()[1];
  if (groups < 1 || channels % groups)
    reject(c, fmt::format("groups must divide the {} channels of {}, got {}", channels, x.shape().str(),
                          groups));
  const int64_t samples = x.shape()[0], all = samples * channels, size = all ? x.numel() / all : 0;
  const auto of_all = [&](const Tensor& t) {  // wide, so that gradients of samples are added so
    return reshape(expand(to(t, compute_dtype(x.dtype())), {samples, channels}), {all});
  };
  const Tensor inputs[] = {reshape(x, {1, all, size}), of_all(c.in[1]), of_all(c.in[2])};
  const Tensor y = ops::apply(kBatchNormTrain, inputs,
                              {{"eps", c.attrs.number("eps")}, {"together", channels / groups}})[0];
  return {reshape(y, to_list(x.shape()))};
}

Tensor numbers(int64_t channels, uint64_t seed, double low = -2) { return sample({channels}, low, 2, seed); }

std::vector<Sample> channels(size_t images, std::initializer_list<double> lows) {
  std::vector<Sample> all;
  for (const Shape& shape :
       {Shape{4, 3, 2, 3}, Shape{5, 2}, Shape{2, 1, 20}, Shape{0, 3, 2}, Shape{3, 0, 2}}) {
    Sample s;
    for (size_t i = 0; i < images; ++i) s.inputs.push_back(sample(shape, -2, 2, i));
    for (const double low : lows) s.inputs.push_back(numbers(shape[1], s.inputs.size(), low));
    all.push_back(std::move(s));
  }
  return all;
}

}  // namespace

const Op kBatchNormTrain{
    .name = "batch_norm_train",
    .inputs = "input weight bias",
    .text = "Normalizes each channel over the batch; also gives the means and variances.",
    .attrs = {{"eps", 1e-5}, {"together", 1}},
    .shape = train_spec,
    .saves_inputs = 0b11,
    .saves_outputs = 0b110,
    .gradient = train_gradient,
    .function = [](std::span<const Tensor> in, const Attrs& a) -> Tensors {
      BatchNorm all = batch_norm_train(in[0], in[1], in[2], a.number("eps"), a.integer("together"));
      return {std::move(all.y), std::move(all.mean), std::move(all.var)};
    },
    .samples =
        [] {
          std::vector<Sample> all = channels(1, {-2, -2});
          all.push_back({{sample({2, 6, 3}), numbers(6, 1), numbers(6, 2)}, {{"together", 3}}});
          return all;
        }};

const Op kBatchNormEval{.name = "batch_norm_eval",
                        .inputs = "input weight bias mean var",
                        .text = "Normalizes each channel by given means and variances.",
                        .attrs = {{"eps", 1e-5}},
                        .compose = eval_of,
                        .takes_half = true,
                        .samples = [] {
                          return channels(1, {-2, -2, -2, 0.5});
                        }};

const Op kGroupNorm{
    .name = "group_norm",
    .inputs = "input weight bias",
    .text = "Normalizes each group of channels of each sample.",
    .internal = true,
    .attrs = {{"num_groups", 1}, {"eps", 1e-5}},
    .compose = group_of,
    .takes_half = true,
    .samples = []() -> std::vector<Sample> {
      std::vector<Sample> all;
      for (const Shape& shape : {Shape{2, 4, 2, 3}, Shape{3, 6}, Shape{0, 4, 2}})
        all.push_back({{sample(shape), numbers(shape[1], 1), numbers(shape[1], 2)}, {{"num_groups", 2}}});
      return all;
    }};

const Op kChannelAffine{.name = "channel_affine",
                        .inputs = "input center scale shift",
                        .text = "scale (input - center) + shift for each channel.",
                        .internal = true,
                        .shape = affine_spec,
                        .saves_inputs = 0b111,
                        .gradient = rounding_once<[](const Backward& b) -> Tensors {
                          const Tensor& g = b.grads[0];
                          Tensors out(4);
                          if (b.needs(0)) out[0] = mul(g, per_channel(b.in[2], b.shape(0)));
                          if (!b.needs(1) && !b.needs(2) && !b.needs(3)) return out;
                          const Tensors sums = sums_of(g, b.in[0], b.in[1]);
                          if (b.needs(1)) out[1] = neg(mul(b.in[2], sums[0]));
                          out[2] = sums[1];
                          out[3] = sums[0];
                          return out;
                        }>,
                        .samples = [] {
                          return channels(1, {-2, -2, -2});
                        }};

const Op kChannelSums{.name = "channel_sums",
                      .inputs = "grad input center",
                      .text = "Sums over each channel of grad and of grad (input - center).",
                      .internal = true,
                      .shape = sums_spec,
                      .saves_inputs = 0b111,
                      .saves_outputs = 0b1,
                      .gradient = rounding_once<[](const Backward& b) -> Tensors {
                        const Tensor &of_sum = b.grads[0], &of_dot = b.grads[1];
                        Tensors out(3);
                        if (b.needs(0)) out[0] = affine(b.in[1], b.in[2], of_dot, of_sum);
                        if (b.needs(1)) out[1] = mul(b.in[0], per_channel(of_dot, b.shape(0)));
                        if (b.needs(2)) out[2] = neg(mul(of_dot, b.out[0]));
                        return out;
                      }>,
                      .samples = [] { return channels(2, {-2}); }};

const Op kChannelMix{.name = "channel_mix",
                     .inputs = "grad input center a b c",
                     .text = "a grad + b (input - center) + c for each channel.",
                     .internal = true,
                     .shape = mix_spec,
                     .saves_inputs = 0b11111,
                     .gradient = rounding_once<[](const Backward& b) -> Tensors {
                       const Tensor& g = b.grads[0];
                       const Tensors sums = sums_of(g, b.in[1], b.in[2]);
                       Tensors out(6);
                       if (b.needs(0)) out[0] = mul(g, per_channel(b.in[3], b.shape(0)));
                       if (b.needs(1)) out[1] = mul(g, per_channel(b.in[4], b.shape(0)));
                       if (b.needs(2)) out[2] = neg(mul(b.in[4], sums[0]));
                       if (b.needs(3)) out[3] = sum_channels(mul(g, b.in[0]));
                       out[4] = sums[1];
                       out[5] = sums[0];
                       return out;
                     }>,
                     .samples = [] {
                       return channels(2, {-2, -2, -2, -2});
                     }};

BatchNorm batch_norm_train(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                           int64_t together) {
  if (!(eps > 0)) throw_invalid(fmt::format("[batch_norm_train] eps must be above 0, got {}", eps));
  Tensors all =
      ops::apply(kBatchNormTrain, std::array{x, weight, bias}, {{"eps", eps}, {"together", together}});
  return {std::move(all[0]), std::move(all[1]), std::move(all[2])};
}
Tensor batch_norm_eval(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                       const Tensor& var, double eps) {
  return apply1(kBatchNormEval, {x, weight, bias, mean, var}, {{"eps", eps}});
}
Tensor group_norm(const Tensor& x, int64_t num_groups, const Tensor& weight, const Tensor& bias, double eps) {
  const auto channels = [&](const Tensor& given, Scalar standard) {
    if (given.defined() || !x.defined() || x.dim() < 2) return given;
    return full({x.shape()[1]}, standard, like(x, {}));
  };
  return apply1(kGroupNorm, {x, channels(weight, 1), channels(bias, 0)},
                {{"num_groups", num_groups}, {"eps", eps}});
}

}  // namespace troupe::ops
