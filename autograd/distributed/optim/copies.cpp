#include "autograd/distributed/optim/copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace troupe::optim {

namespace {

// Ranks on unlike machines may differ in rounding.
bool nearly_equal(double a, double b) {
  if (!std::isfinite(a) || !std::isfinite(b)) return true;  // clipping says so
  return std::abs(a - b) <= 0.01 * std::max(a, b) + 1e-30;
}

}  // namespace

void check_copies(const std::vector<std::pair<std::string, std::vector<CopySizes>>>& of_actors) {
  using Copy = std::pair<uint64_t, std::string>;  // the group, and its name
  std::map<Copy, std::vector<std::pair<std::string, double>>> sizes;
  std::map<uint64_t, uint64_t> ranks;
  for (const auto& [actor, groups] : of_actors)
    for (const CopySizes& of : groups) {
      ranks[of.group] = of.ranks;
      for (size_t i = 0; i < of.names.size(); ++i)
        sizes[{of.group, of.names.at(i)}].emplace_back(actor, of.sizes.at(i));
    }
  for (const auto& [copy, all] : sizes) {
    if (all.size() > ranks[copy.first]) continue;  // several models on the same workers
    const auto [least, most] = std::ranges::minmax(all, {}, &std::pair<std::string, double>::second);
    if (!nearly_equal(least.second, most.second))
      throw_invalid(fmt::format(
          "[clip_grad_norm] {} has a gradient of norm {:.6g} in {} and {:.6g} in {}, and nobody has said "
          "that "
          "ranks of a group have other parts of it: say tp::cut_parameter(p) of a parameter p that is cut, "
          "or "
          "one rank's alone, when it is made. Copies have one gradient; what computes with each for itself "
          "takes it by tp::enter()",
          copy.second, std::sqrt(least.second), least.first, std::sqrt(most.second), most.first));
  }
}

}  // namespace troupe::optim
