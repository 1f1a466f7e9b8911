#include "autograd/distributed/optim/copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "actors/cell/actor_cell.h"
#include "core/base/error.h"

namespace troupe::optim {

namespace {

struct CopiesInGroup {
  uint64_t group, ranks;
  bool counts;
  Tensors copies, pieces;
};
using AllCopies = std::vector<CopiesInGroup>;  // of an actor

bool is_among(const Tensors& all, const Tensor& one) {
  return std::ranges::any_of(all, [&](const Tensor& t) { return t.is_same(one); });
}

// Ranks on unlike machines may differ in rounding.
bool nearly_equal(double a, double b) {
  if (!std::isfinite(a) || !std::isfinite(b)) return true;  // clipping says so
  return std::abs(a - b) <= 0.01 * std::max(a, b) + 1e-30;
}

}  // namespace

void have_copies(uint64_t group, uint64_t ranks, uint64_t rank, Tensors copies, Tensors pieces) {
  internal::actors::current_cell()->keep<AllCopies>().push_back(
      {group, ranks, rank == 0, std::move(copies), std::move(pieces)});
}

void forget_copies() { internal::actors::current_cell()->keep<AllCopies>().clear(); }

std::vector<CopySizes> count_once(const Tensors& parameters, const std::vector<std::string>& names,
                                  Sizes& counted) {
  std::vector<CopySizes> all;
  Sizes left = counted;
  for (const CopiesInGroup& in : internal::actors::current_cell()->keep<AllCopies>()) {
    CopySizes of{in.group, in.ranks, {}, {}};
    for (size_t i = 0; i < parameters.size(); ++i) {
      const bool is_copy = is_among(in.copies, parameters[i]);
      if (!in.counts && (is_copy || is_among(in.pieces, parameters[i]))) left.erase(i);
      const auto size = counted.find(i);
      if (!is_copy || (!in.counts && size == counted.end())) continue;
      of.names.push_back(names[i]), of.sizes.push_back(size == counted.end() ? 0 : size->second);
    }
    all.push_back(std::move(of));
  }
  counted = std::move(left);
  return all;
}

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
