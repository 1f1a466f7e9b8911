#include "ops/rotary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/dispatch/promote.h"
#include "ops/gradient_rules.h"
#include "ops/index.h"
#include "ops/reshape_ops.h"
#include "ops/unary.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

using std::numbers::pi;

[[noreturn]] void refuse_rotary(const std::string& text) { throw_invalid("[rotary_table] " + text); }

void check_rotary(const RotaryOptions& o, int64_t width) {
  if (width < 2 || width % 2)
    refuse_rotary(fmt::format("width must be even and at least 2, got {}: it is turned in pairs", width));
  if (!(o.theta > 0)) refuse_rotary(fmt::format("theta must be above 0, got {}", o.theta));
  constexpr std::string_view kKnown[] = {"default", "linear", "dynamic", "yarn", "llama3"};
  if (std::ranges::find(kKnown, o.scaling) == std::end(kKnown))
    refuse_rotary(fmt::format(
        "scaling must be \"default\", \"linear\", \"dynamic\", \"yarn\" or \"llama3\", got \"{}\"",
        o.scaling));
  if (!(o.factor >= 1)) refuse_rotary(fmt::format("factor must be at least 1, got {}", o.factor));
  if (o.scaling != "default" && o.scaling != "linear" && o.original_max_position_embeddings < 1)
    refuse_rotary(fmt::format("scaling \"{}\" needs original_max_position_embeddings, got {}", o.scaling,
                              o.original_max_position_embeddings));
  if (o.scaling == "llama3" && !(o.low_freq_factor > 0 && o.low_freq_factor < o.high_freq_factor))
    refuse_rotary(fmt::format("low_freq_factor must be above 0 and below high_freq_factor, got {} and {}",
                              o.low_freq_factor, o.high_freq_factor));
  if (o.scaling == "yarn" && !(o.beta_slow > 0 && o.beta_slow <= o.beta_fast && o.theta > 1))
    refuse_rotary(
        fmt::format("\"yarn\" needs 0 < beta_slow <= beta_fast and theta above 1, got {}, {} and {}",
                    o.beta_slow, o.beta_fast, o.theta));
}

double theta_of(const RotaryOptions& o, int64_t width) {
  if (o.scaling != "dynamic" || width == 2) return o.theta;
  const auto trained = static_cast<double>(o.original_max_position_embeddings);
  const double longest = std::max(static_cast<double>(o.sequence_length), trained);
  const double stretch = o.factor * longest / trained - (o.factor - 1), w = static_cast<double>(width);
  return o.theta * std::pow(stretch, w / (w - 2));
}

// How much of pair i is stretched: none of those that turn often in a trained length, all of the slow ones.
double stretched_share(const RotaryOptions& o, int64_t width, int64_t i) {
  const auto pair_of = [&](double rotations) {
    const double length = static_cast<double>(o.original_max_position_embeddings);
    return static_cast<double>(width) * std::log(length / (rotations * 2 * pi)) / (2 * std::log(o.theta));
  };
  const double low = std::max(std::floor(pair_of(o.beta_fast)), 0.0);
  double high = std::min(std::ceil(pair_of(o.beta_slow)), static_cast<double>(width - 1));
  if (low == high) high += 0.001;
  return std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
}

double llama3_frequency(const RotaryOptions& o, double frequency) {
  const double turns = static_cast<double>(o.original_max_position_embeddings) * frequency / (2 * pi);
  if (turns > o.high_freq_factor) return frequency;
  if (turns < o.low_freq_factor) return frequency / o.factor;
  const double smooth = (turns - o.low_freq_factor) / (o.high_freq_factor - o.low_freq_factor);
  return (1 - smooth) * frequency / o.factor + smooth * frequency;
}

std::vector<float> frequencies(const RotaryOptions& o, int64_t width) {
  std::vector<float> out;
  const double theta = theta_of(o, width);
  for (int64_t i = 0; i < width / 2; ++i) {
    double f = std::pow(theta, -2 * static_cast<double>(i) / static_cast<double>(width));
    if (o.scaling == "linear") f /= o.factor;
    if (o.scaling == "llama3") f = llama3_frequency(o, f);
    if (o.scaling == "yarn") {
      const double share = stretched_share(o, width, i);
      f = share * f / o.factor + (1 - share) * f;
    }
    out.push_back(static_cast<float>(f));
  }
  return out;
}

// ---- turning

// The columns of the first and of the second ones of the pairs, and the rest.
struct Pairs {
  Tensor first, second, rest;
};

Pairs pairs_of(const Tensor& x, int64_t n, bool interleaved) {
  const Tensor turned = slice(x, -1, 0, 2 * n), rest = slice(x, -1, 2 * n);
  if (!interleaved) return {slice(turned, -1, 0, n), slice(turned, -1, n), rest};
  return {slice(turned, -1, 0, 2 * n, 2), slice(turned, -1, 1, 2 * n, 2), rest};
}

Tensor from_pairs(const Pairs& p, bool interleaved) {
  const Tensor turned =
      interleaved ? flatten(stack({p.first, p.second}, -1), -2, -1) : cat({p.first, p.second}, -1);
  return p.rest.size(-1) ? cat({turned, p.rest}, -1) : turned;
}

Tensor turned(const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved) {
  const Pairs p = pairs_of(x, cos.size(-1), interleaved);
  return from_pairs(
      {sub(mul(p.first, cos), mul(p.second, sin)), add(mul(p.second, cos), mul(p.first, sin)), p.rest},
      interleaved);
}

Tensors rotary_of(const Call& c) {
  const Tensor &x = c.in[0], &cos = c.in[1], &sin = c.in[2];
  for (const Tensor& t : c.in) require_floating(c, t);
  require_same_shape(c, cos, sin);
  bool fits = x.dim() >= 1 && cos.dim() >= 1 && cos.dim() <= x.dim() && 2 * cos.size(-1) <= x.size(-1);
  for (int i = 1; fits && i < cos.dim(); ++i) {
    const int64_t n = cos.size(-1 - i);
    fits = n == 1 || n == x.size(-1 - i);
  }
  if (!fits)
    reject(c, fmt::format("cos and sin {} do not broadcast to the halves of {}: expected [.., {}] or less",
                          cos.shape().str(), x.summary(), x.dim() ? x.size(-1) / 2 : 0));
  return {rounded_once(x.dtype(), [&](DType wide) {
    return turned(to(x, wide), to(cos, wide), to(sin, wide), c.attrs.flag("interleaved"));
  })};
}

// Back by the same angles; and what cosines and sines themselves would change.
Tensors rotary_gradient(const Backward& b) {
  const bool interleaved = b.attrs.flag("interleaved");
  const Tensor& g = b.grads[0];
  Tensors out(3);
  if (b.needs(0)) out[0] = rotary(g, b.in[1], neg(b.in[2]), interleaved);
  if (!b.needs(1) && !b.needs(2)) return out;
  const int64_t n = b.shape(1).back();
  const Pairs x = pairs_of(to(b.in[0], compute_dtype(b.in[0].dtype())), n, interleaved);
  const Pairs d = pairs_of(to(g, compute_dtype(g.dtype())), n, interleaved);
  const auto in_shape = [&](const Tensor& t, size_t i) {
    return to(sum_to(t, b.shape(i)), b.in_specs[i].dtype);
  };
  if (b.needs(1)) out[1] = in_shape(add(mul(d.first, x.first), mul(d.second, x.second)), 1);
  if (b.needs(2)) out[2] = in_shape(sub(mul(d.second, x.first), mul(d.first, x.second)), 2);
  return out;
}

}  // namespace

const Op kRotary{
    .name = "rotary",
    .inputs = "input cos sin",
    .text = "Pairs of columns, turned by angles: i and i + n of 2 n, or 2 i and 2 i + 1.",
    .attrs = {{"interleaved", false}},
    .compose = rotary_of,
    .saves_inputs = 0b111,
    .saves_for = {0b110, kAll},
    .gradient = rotary_gradient,
    .takes_half = true,
    .samples = []() -> std::vector<Sample> {
      const Tensor x = sample({2, 3, 6}), cos = sample({3, 2}, -1, 1, 1), sin = sample({3, 2}, -1, 1, 2);
      const Tensor each = sample({2, 1, 3}, -1, 1, 1), other = sample({2, 1, 3}, -1, 1, 2);
      return {{{x, cos, sin}},
              {{x, cos, sin}, {{"interleaved", true}}},
              {{x, each, other}},
              {{x, each, other}, {{"interleaved", true}}}};
    }};

RotaryTable rotary_table(const Tensor& positions, int64_t width, const RotaryOptions& options) {
  if (!positions.defined()) refuse_rotary("positions is an undefined tensor");
  if (positions.dtype() == boolean || (positions.is_floating_point() && positions.dtype() != float32))
    refuse_rotary("positions must be integers or float32, got " + positions.summary() + "; use .to()");
  check_rotary(options, width);
  const Tensor angles = mul(unsqueeze(to(positions.detach(), float32), -1),
                            tensor(frequencies(options, width), positions.device()));
  double size = 1;
  if (options.scaling == "yarn")
    size = options.attention_factor > 0 ? options.attention_factor : 0.1 * std::log(options.factor) + 1;
  RotaryTable table{cos(angles), sin(angles)};
  if (size != 1) table = {mul(table.cos, size), mul(table.sin, size)};
  return table;
}

Tensor rotary(const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved) {
  return apply1(kRotary, {x, cos, sin}, {{"interleaved", interleaved}});
}

}  // namespace troupe::ops
