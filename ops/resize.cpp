#include "ops/resize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/dispatch/cast_call.h"
#include "ops/dispatch/check.h"
#include "ops/dispatch/promote.h"
#include "ops/index.h"
#include "ops/min_max.h"
#include "ops/reduce.h"
#include "ops/reshape_ops.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

[[noreturn]] void refuse_resize(const char* op, const std::string& text) {
  throw_invalid(fmt::format("[{}] {}", op, text));
}
void require_channels(const char* op, const Tensor& x, int least, int most) {
  if (!x.defined()) refuse_resize(op, "got an undefined tensor");
  if (!is_floating(x.dtype()))
    refuse_resize(op, "needs a floating dtype, got " + x.summary() + "; use .to()");
  if (x.dim() < least || x.dim() > most)
    refuse_resize(op, fmt::format("needs {} to {} dimensions, the first two of samples and channels, got {}",
                                  least, most, x.summary()));
}

// Says where window i of `parts` begins and ends in a dimension of that size.
struct Cut {
  int64_t size, parts;
  int64_t begin(int64_t i) const { return i * size / parts; }
  int64_t end(int64_t i) const { return ((i + 1) * size + parts - 1) / parts; }
};

Tensor mean_of_parts(const Tensor& x, int dim, int64_t parts) {
  const Cut cut{x.shape()[dim], parts};
  if (cut.size == parts) return x;
  Tensors means;
  for (int64_t i = 0; i < parts; ++i)
    means.push_back(mean(slice(x, dim, cut.begin(i), cut.end(i)), dim, true));
  return means.empty() ? slice(x, dim, 0, 0) : cat(means, dim);
}

std::vector<int64_t> wanted_parts(const char* op, const Tensor& x, const IntList& output_size, size_t dims) {
  std::vector<int64_t> out = output_size;
  if (out.size() == 1) out.resize(dims, out[0]);
  if (out.size() != dims)
    refuse_resize(op,
                  fmt::format("output_size must be {} numbers, got {}", dims, str(AttrValue(output_size))));
  for (size_t d = 0; d < dims; ++d) {
    const int64_t size = x.size(static_cast<int64_t>(d) - static_cast<int64_t>(dims));
    if (out[d] == -1) out[d] = size;
    if (out[d] < 0 || size == 0)
      refuse_resize(
          op, fmt::format("output_size {} of {} cannot be made", str(AttrValue(output_size)), x.summary()));
  }
  return out;
}

Tensor averaged(const char* op, const Tensor& x, const IntList& output_size, size_t dims) {
  require_channels(op, x, static_cast<int>(dims) + 1, static_cast<int>(dims) + 2);
  const auto parts = wanted_parts(op, x, output_size, dims);
  return rounded_once(x.dtype(), [&](DType wide) {
    Tensor y = to(x, wide);
    for (size_t d = 0; d < dims; ++d) y = mean_of_parts(y, y.dim() - static_cast<int>(dims - d), parts[d]);
    return y.is_same(x) ? clone(y) : y;
  });
}

// ---- interpolation along one dimension

// For each new place the old ones that make it, and how much each counts.
struct Taps {
  std::vector<std::vector<int64_t>> at;
  std::vector<std::vector<double>> weight;
};

struct Scale {
  int64_t from, to;
  double step;  // of old places for each new one
  bool corners;

  double place(int64_t i) const {
    const auto x = static_cast<double>(i);
    return corners ? step * x : step * (x + 0.5) - 0.5;
  }
};

Taps linear_taps(const Scale& s) {
  Taps t{{{}, {}}, {{}, {}}};
  for (int64_t i = 0; i < s.to; ++i) {
    const double x = std::max(s.place(i), 0.0);
    const int64_t low = std::min(static_cast<int64_t>(x), s.from - 1);
    const double share = std::clamp(x - static_cast<double>(low), 0.0, 1.0);
    t.at[0].push_back(low);
    t.at[1].push_back(std::min(low + 1, s.from - 1));
    t.weight[0].push_back(1 - share);
    t.weight[1].push_back(share);
  }
  return t;
}

// Keys 1981, with a = -0.75.
Taps cubic_taps(const Scale& s) {
  constexpr double a = -0.75;
  const auto inner = [](double x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  const auto outer = [](double x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  Taps t{{{}, {}, {}, {}}, {{}, {}, {}, {}}};
  for (int64_t i = 0; i < s.to; ++i) {
    const double x = s.place(i), low = std::floor(x), share = x - low;
    const double weights[] = {outer(share + 1), inner(share), inner(1 - share), outer(2 - share)};
    for (size_t k = 0; k < 4; ++k) {
      t.at[k].push_back(
          std::clamp<int64_t>(static_cast<int64_t>(low) + static_cast<int64_t>(k) - 1, 0, s.from - 1));
      t.weight[k].push_back(weights[k]);
    }
  }
  return t;
}

// Weights of filters (Keys 1981, with a = -0.5, or a triangle) as wide as the elements that make one of a
// smaller result, and that add up to 1.
Taps smooth_taps(const Scale& s, bool cubic) {
  const auto filter = [cubic](double x) {
    constexpr double a = -0.5;
    x = std::abs(x);
    if (!cubic) return std::max(1 - x, 0.0);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
  };
  const double wide = std::max(s.step, 1.0), reach = (cubic ? 2 : 1) * wide;
  const auto taps =
      static_cast<size_t>(std::min<double>(2 * std::ceil(reach) + 1, static_cast<double>(s.from)));
  Taps t{std::vector<std::vector<int64_t>>(taps), std::vector<std::vector<double>>(taps)};
  for (int64_t i = 0; i < s.to; ++i) {
    const double center = s.step * (static_cast<double>(i) + 0.5);
    const int64_t begin = std::max<int64_t>(static_cast<int64_t>(center - reach + 0.5), 0);
    const int64_t end = std::min(static_cast<int64_t>(center + reach + 0.5), s.from);
    double sum = 0;
    for (int64_t j = begin; j < end; ++j) sum += filter((static_cast<double>(j) - center + 0.5) / wide);
    for (size_t k = 0; k < taps; ++k) {
      const int64_t j = begin + static_cast<int64_t>(k);
      const bool there = j < end;
      t.at[k].push_back(there ? j : 0);
      t.weight[k].push_back(there ? filter((static_cast<double>(j) - center + 0.5) / wide) / sum : 0);
    }
  }
  return t;
}

// Places are computed in float32, as PyTorch does.
std::vector<int64_t> nearest_places(const Scale& s, bool exact) {
  std::vector<int64_t> out;
  const auto step = static_cast<float>(s.step);
  for (int64_t i = 0; i < s.to; ++i) {
    const float x = (static_cast<float>(i) + (exact ? 0.5f : 0.f)) * step;
    out.push_back(std::min(static_cast<int64_t>(std::floor(x)), s.from - 1));
  }
  return out;
}

Tensor mixed(const Tensor& x, int dim, const Taps& taps) {
  std::vector<int64_t> lie(static_cast<size_t>(x.dim()), 1);
  lie[static_cast<size_t>(dim)] = static_cast<int64_t>(taps.at[0].size());
  Tensor y;
  for (size_t k = 0; k < taps.at.size(); ++k) {
    const Tensor weight = reshape(to(tensor(taps.weight[k], float64), x.dtype()), lie);
    const Tensor part = mul(index_select(x, dim, tensor(taps.at[k], x.device())), to(weight, x.device()));
    y = y.defined() ? add(y, part) : part;
  }
  return y;
}

// The sizes asked for, and the step of each dimension.
std::vector<Scale> scales_of(const Tensor& x, const std::optional<IntList>& size,
                             const std::vector<double>& factors, bool corners, bool by_sizes) {
  constexpr const char* kName = "interpolate";
  const size_t dims = static_cast<size_t>(x.dim()) - 2;
  if (size.has_value() == !factors.empty()) refuse_resize(kName, "needs size or scale_factor, and not both");
  if (size && by_sizes) refuse_resize(kName, "recompute_scale_factor is for scale_factor, and got size");
  const size_t given = size ? size->size() : factors.size();
  if (given != 1 && given != dims)
    refuse_resize(kName,
                  fmt::format("needs one number, or one for each of {} dimensions, got {}", dims, given));
  std::vector<Scale> out;
  for (size_t d = 0; d < dims; ++d) {
    Scale s{x.shape()[static_cast<int>(d) + 2], 0, 0, corners};
    const double factor = size ? 0 : factors[given == 1 ? 0 : d];
    s.to = size ? (*size)[given == 1 ? 0 : d]
                : static_cast<int64_t>(std::floor(static_cast<double>(s.from) * factor));
    if (s.from < 1 || s.to < 1)
      refuse_resize(kName, fmt::format("sizes must be at least 1, got {} of {}", s.to, x.summary()));
    const auto from = static_cast<double>(s.from), to = static_cast<double>(s.to);
    s.step = corners ? (s.to > 1 ? (from - 1) / (to - 1) : 0) : size || by_sizes ? from / to : 1 / factor;
    out.push_back(s);
  }
  return out;
}

void check_mode(const Tensor& x, const std::string& mode, const std::optional<bool>& align_corners) {
  constexpr const char* kName = "interpolate";
  struct Mode {
    std::string_view name;
    int rank;  // 0: any
    bool corners;
  };
  constexpr Mode kModes[] = {{"nearest", 0, false}, {"nearest-exact", 0, false}, {"area", 0, false},
                             {"linear", 3, true},   {"bilinear", 4, true},       {"trilinear", 5, true},
                             {"bicubic", 4, true}};
  const auto* known = std::ranges::find(kModes, mode, &Mode::name);
  if (known == std::end(kModes))
    refuse_resize(
        kName, fmt::format("mode must be \"nearest\", \"nearest-exact\", \"area\", \"linear\", \"bilinear\", "
                           "\"trilinear\" or \"bicubic\", got \"{}\"",
                           mode));
  if (known->rank && known->rank != x.dim())
    refuse_resize(kName,
                  fmt::format("mode \"{}\" needs {} dimensions, got {}", mode, known->rank, x.summary()));
  if (align_corners && !known->corners)
    refuse_resize(kName, fmt::format("align_corners is not for mode \"{}\"; leave it out", mode));
}

}  // namespace

Tensor interpolate(const Tensor& x, const std::optional<IntList>& size,
                   const std::vector<double>& scale_factor, const std::string& mode,
                   std::optional<bool> align_corners, bool recompute_scale_factor, bool antialias) {
  require_channels("interpolate", x, 3, 5);
  if (const auto y = under_autocast("interpolate", {&x}, [&](const auto& in) {
        return interpolate(in[0], size, scale_factor, mode, align_corners, recompute_scale_factor, antialias);
      }))
    return *y;
  check_mode(x, mode, align_corners);
  if (antialias && mode != "bilinear" && mode != "bicubic")
    refuse_resize("interpolate",
                  fmt::format("antialias is for modes \"bilinear\" and \"bicubic\", got \"{}\"", mode));
  const std::vector<Scale> scales =
      scales_of(x, size, scale_factor, align_corners.value_or(false), recompute_scale_factor);
  return rounded_once(x.dtype(), [&](DType wide) {
    Tensor y = to(x, wide);
    for (size_t d = 0; d < scales.size(); ++d) {
      const int dim = static_cast<int>(d) + 2;
      const Scale& s = scales[d];
      if (mode == "area")
        y = mean_of_parts(y, dim, s.to);
      else if (mode.starts_with("nearest"))
        y = index_select(y, dim, tensor(nearest_places(s, mode == "nearest-exact"), x.device()));
      else if (antialias)
        y = mixed(y, dim, smooth_taps(s, mode == "bicubic"));
      else
        y = mixed(y, dim, mode == "bicubic" ? cubic_taps(s) : linear_taps(s));
    }
    return y.is_same(x) ? clone(y) : y;
  });
}

Tensor adaptive_avg_pool1d(const Tensor& x, int64_t output_size) {
  return averaged("adaptive_avg_pool1d", x, output_size, 1);
}
Tensor adaptive_avg_pool2d(const Tensor& x, const IntList& output_size) {
  return averaged("adaptive_avg_pool2d", x, output_size, 2);
}

namespace {

// The largest of each window, and, if wanted, where in the image it is.
ValuesAndIndices largest_of_parts(const Tensor& x, const IntList& output_size, bool places) {
  constexpr const char* kName = "adaptive_max_pool2d";
  require_channels(kName, x, 3, 4);
  const auto parts = wanted_parts(kName, x, output_size, 2);
  const Cut rows{x.size(-2), parts[0]}, columns{x.size(-1), parts[1]};
  Tensors largest, at;
  for (int64_t i = 0; i < rows.parts; ++i)
    for (int64_t j = 0; j < columns.parts; ++j) {
      const int64_t top = rows.begin(i), left = columns.begin(j), width = columns.end(j) - left;
      const Tensor window = slice(slice(x, -2, top, rows.end(i)), -1, left, left + width);
      const ValuesAndIndices found = max(flatten(window, -2, -1), -1);
      largest.push_back(found.values);
      if (!places) continue;
      const Tensor row = div(found.indices, width, "floor"), column = sub(found.indices, mul(row, width));
      at.push_back(add(mul(add(row, top), columns.size), add(column, left)));
    }
  std::vector<int64_t> shape = to_list(x.shape());
  shape[shape.size() - 2] = parts[0];
  shape[shape.size() - 1] = parts[1];
  const auto joined = [&](const Tensors& all, DType t) {
    return all.empty() ? zeros(Shape(shape), {t, x.device()}) : reshape(stack(all, -1), shape);
  };
  return {joined(largest, x.dtype()), places ? joined(at, int64) : Tensor()};
}

}  // namespace

Tensor adaptive_max_pool1d(const Tensor& x, int64_t output_size) {
  require_channels("adaptive_max_pool1d", x, 2, 3);
  return squeeze(adaptive_max_pool2d(unsqueeze(x, -2), {1, output_size}), -2);
}
Tensor adaptive_max_pool2d(const Tensor& x, const IntList& output_size) {
  return largest_of_parts(x, output_size, false).values;
}
ValuesAndIndices adaptive_max_pool1d_with_indices(const Tensor& x, int64_t output_size) {
  require_channels("adaptive_max_pool1d", x, 2, 3);
  const auto found = adaptive_max_pool2d_with_indices(unsqueeze(x, -2), {1, output_size});
  return {squeeze(found.values, -2), squeeze(found.indices, -2)};
}
ValuesAndIndices adaptive_max_pool2d_with_indices(const Tensor& x, const IntList& output_size) {
  return largest_of_parts(x, output_size, true);
}

}  // namespace troupe::ops
