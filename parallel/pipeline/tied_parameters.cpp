#include "parallel/pipeline/tied_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "autograd/add_gradient.h"
#include "core/base/error.h"

namespace troupe::parallel {
namespace {

void check_tie(const std::vector<StageParameter>& copies, const std::vector<AnyRef>& actors,
               std::set<std::pair<int, std::string>>& seen) {
  if (copies.size() < 2)
    throw_invalid(fmt::format("[pipeline] a tie of {} parameters: expected at least 2", copies.size()));
  for (const auto& [stage, name] : copies) {
    if (stage < 0 || static_cast<size_t>(stage) >= actors.size())
      throw_invalid(fmt::format("[pipeline] parameter {} of stage {} cannot be tied: there are {} stages",
                                name, stage, actors.size()));
    if (!seen.emplace(stage, name).second)
      throw_invalid(fmt::format("[pipeline] parameter {} of stage {} is tied twice", name, stage));
    const AnyRef& actor = actors[static_cast<size_t>(stage)];
    if (std::count(actors.begin(), actors.end(), actor) > 1)
      throw_invalid(fmt::format(
          "[pipeline] parameter {} of stage {} cannot be tied: its actor is that of another stage, "
          "which has the parameter already; ties are for copies in other actors",
          name, stage));
  }
}

}  // namespace

std::vector<std::vector<Tie>> connect_ties(const std::vector<std::vector<StageParameter>>& lists,
                                           const std::vector<AnyRef>& actors) {
  std::set<std::pair<int, std::string>> seen;
  for (const auto& copies : lists) check_tie(copies, actors, seen);
  std::vector<std::vector<Tie>> ties(actors.size());
  std::vector<int64_t> slots(actors.size());
  for (const auto& copies : lists) {
    for (size_t i = 0; i < copies.size(); ++i) {
      Tie tie{copies[i].name, static_cast<int64_t>(i), {}};
      for (size_t k = 0; k < copies.size();
           ++k)  // at copy k, this one is the i-th or, behind k, the one before
        if (k != i) {
          const auto stage = static_cast<size_t>(copies[k].stage);
          tie.others.push_back({copies[k].stage, slots[stage] + static_cast<int64_t>(i - (i > k))});
        }
      ties[static_cast<size_t>(copies[i].stage)].push_back(std::move(tie));
    }
    for (const auto& copy : copies)
      slots[static_cast<size_t>(copy.stage)] += static_cast<int64_t>(copies.size()) - 1;
  }
  return ties;
}

size_t slots_of(const std::vector<Tie>& ties) {
  size_t count = 0;
  for (const Tie& tie : ties) count += tie.others.size();
  return count;
}

Tensors sum_of_ties(const std::vector<Tie>& ties, const Tensors& own, const Tensors& came) {
  Tensors sums;
  size_t slot = 0;
  for (size_t t = 0; t < ties.size(); ++t) {
    Tensor sum;
    const auto add = [&](const Tensor& grad) {
      if (grad.defined()) sum = sum.defined() ? internal::autograd::sum_gradients(sum, grad) : grad;
    };
    for (size_t i = 0; i <= ties[t].others.size(); ++i)
      add(static_cast<int64_t>(i) == ties[t].position ? own.at(t) : came.at(slot++));
    sums.push_back(std::move(sum));
  }
  return sums;
}

}  // namespace troupe::parallel
