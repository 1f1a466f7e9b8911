#include "collective/matching/signature.h"

#include <algorithm>

namespace troupe::internal::collective {

std::string Signature::str() const {
  std::string all(name(problem.collective));
  if (!reduction.empty()) all += " " + reduction;
  if (problem.collective != Collective::barrier) all += " " + std::string(name(dtype));
  constexpr size_t kShown = 4;
  for (size_t i = 0; i < std::min(shapes.size(), kShown); ++i) all += (i ? ", " : " ") + shapes[i].str();
  if (shapes.size() > kShown) all += ", ... (" + std::to_string(shapes.size()) + ")";
  if (problem.has_root()) {
    const bool to = problem.collective == Collective::reduce || problem.collective == Collective::gather;
    all += (to ? " to rank " : " from rank ") + std::to_string(problem.root);
  }
  return all + " by " + std::string(name(way));
}

std::string difference(const Signature& a, const Signature& b) {
  if (a.problem.collective != b.problem.collective) return "operations";
  if (a.problem.root != b.problem.root) return "roots";
  if (a.reduction != b.reduction) return "reductions";
  if (a.dtype != b.dtype) return "dtypes";
  if (a.shapes != b.shapes) return "shapes";
  if (a.problem != b.problem) return "sizes";
  return a.way != b.way || a.piece != b.piece ? "ways" : "";
}

}  // namespace troupe::internal::collective
