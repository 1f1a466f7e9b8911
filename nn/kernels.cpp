#include "nn/kernels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "nn/init.h"
#include "ops/arrange.h"
#include "ops/index.h"

namespace troupe::nn {

void check_kernels(const char* layer, int64_t in, int64_t out, std::span<const int64_t> kernel,
                   int64_t groups) {
  if (in < 1 || out < 1 || std::ranges::any_of(kernel, [](int64_t side) { return side < 1; }))
    throw_invalid(fmt::format("[{}] sizes must be at least 1, got in {}, out {}, kernel {}", layer, in, out,
                              fmt::join(kernel, " x ")));
  if (groups < 1 || in % groups != 0 || out % groups != 0)
    throw_invalid(
        fmt::format("[{}] {} groups do not divide {} inputs and {} outputs", layer, groups, in, out));
}

void check_padding_mode(const char* layer, const std::string& mode) {
  constexpr std::string_view kKnown[] = {"zeros", "reflect", "replicate", "circular"};
  if (std::ranges::find(kKnown, mode) == std::end(kKnown))
    throw_invalid(fmt::format(
        "[{}] padding_mode must be \"zeros\", \"reflect\", \"replicate\" or \"circular\", got \"{}\"", layer,
        mode));
}

void start_uniform(const Tensor& weight, const Tensor& bias, Generator& generator) {
  const double bound = 1 / std::sqrt(static_cast<double>(weight.numel() / weight.size(0)));
  init::uniform_(weight, -bound, bound, generator);
  if (bias.defined()) init::uniform_(bias, -bound, bound, generator);
}

Tensor padded(const Tensor& x, std::span<const int64_t> padding, const std::string& mode) {
  std::vector<int64_t> widths;
  for (size_t d = padding.size(); d-- > 0;) widths.insert(widths.end(), {padding[d], padding[d]});
  return ops::pad(x, widths, mode);
}

}  // namespace troupe::nn
