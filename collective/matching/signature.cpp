#include "collective/matching/signature.h"

#include <algorithm>

#include "core/value/owned_number.h"

namespace troupe::internal::collective {

namespace {

std::string context_text(uint64_t context) {
  return std::to_string(count_of_number(context)) + " of worker " + std::to_string(owner_of_number(context));
}

bool one_context(uint64_t a, uint64_t b) {
  return a == b || !a || !b || owner_of_number(a) != owner_of_number(b);
}

}  // namespace

namespace {

// ", .rows = {1, 5}", of what is divided into rows or gathered.
std::string rows_text(const Signature& s) {
  const Problem& p = s.problem;
  const bool divides = p.collective == Collective::reduce_scatter;
  const bool given = p.collective == Collective::all_gather || p.collective == Collective::all_to_all;
  if ((!divides && !given) || s.shapes.size() != 1) return "";
  Shape row = s.shapes[0];
  if (divides && !row.empty()) row.erase(0);
  if (!row.numel()) return "";
  std::string all;
  for (const size_t n : p.counts)
    all += (all.empty() ? "" : ", ") + std::to_string(n / static_cast<size_t>(row.numel()));
  return ", .rows = {" + all + "}";
}

constexpr std::string_view kOnDevices = "sizes of tensors on devices";

}  // namespace

std::string Signature::str() const {
  return text() + (context ? " in context " + context_text(context) : "");
}

std::string Signature::text() const {
  std::string all(name(operation()));
  if (before) {
    if (reduction == kOnDevices) return all + " of tensors on a device";
    const bool may_know = *before == Collective::all_gather || *before == Collective::all_to_all;
    return all + (may_know ? " without .rows" : "");
  }
  if (!reduction.empty()) all += " " + reduction;
  if (problem.collective != Collective::barrier) all += " " + std::string(name(dtype));
  constexpr size_t kShown = 4;
  const bool of_rows =
      problem.collective == Collective::all_gather || problem.collective == Collective::all_to_all;
  const char* first = of_rows ? " rows of " : " ";
  for (size_t i = 0; i < std::min(shapes.size(), kShown); ++i) all += (i ? ", " : first) + shapes[i].str();
  if (shapes.size() > kShown) all += ", ... (" + std::to_string(shapes.size()) + ")";
  all += rows_text(*this);
  if (problem.has_root()) {
    const bool to = problem.collective == Collective::reduce || problem.collective == Collective::gather;
    all += (to ? " to rank " : " from rank ") + std::to_string(problem.root);
  }
  return all + (on_devices ? " between devices" : " by " + std::string(name(way)));
}

void Signature::tell_before(Collective what, bool of_devices) {
  before = what;
  reduction = of_devices ? kOnDevices : "sizes";
}

Problem Signature::by_messages() const {
  return on_devices ? Problem{Collective::barrier, problem.ranks, 0, {}} : problem;
}
size_t Signature::chunks() const { return collective::chunks(by_messages(), way, piece); }
Schedule Signature::steps(size_t rank, size_t chunk) const {
  return collective::steps(by_messages(), way, rank, piece, chunk);
}

bool Signature::operator==(const Signature& o) const { return difference(*this, o).empty(); }

std::string difference(const Signature& a, const Signature& b) {
  // What both tell says where operations, rows and dtypes differ.
  const bool both_tell = a.before && b.before && a.reduction == b.reduction;
  if ((a.before || b.before) && !both_tell) {
    if (a.operation() != b.operation()) return "operations";
    const bool memory = a.reduction == kOnDevices || b.reduction == kOnDevices;
    return memory ? "memory" : ".rows";
  }
  if (a.problem.collective != b.problem.collective) return "operations";
  if (a.problem.root != b.problem.root) return "roots";
  if (a.reduction != b.reduction) return "reductions";
  if (a.dtype != b.dtype) return "dtypes";
  if (a.shapes != b.shapes) return "shapes";
  if (a.problem.hosts != b.problem.hosts) return "hosts";
  if (a.problem != b.problem) return ".rows";
  if (a.on_devices != b.on_devices) return "memory";
  if (a.way != b.way || a.piece != b.piece) return "ways";
  return one_context(a.context, b.context) ? "" : "contexts";
}

}  // namespace troupe::internal::collective
