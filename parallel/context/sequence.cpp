#include "parallel/context/sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/base/even_sizes.h"
#include "ops/index.h"
#include "ops/view.h"

namespace troupe::cp {

namespace {

Tensor part(const Tensor& x, int64_t dim, const Positions& p) { return ops::slice(x, dim, p.from, p.end()); }

Tensor together(const Tensors& parts, const Tensor& x, int64_t dim) {
  if (parts.empty()) return ops::slice(x, dim, 0, 0);
  return parts.size() == 1 ? parts[0] : ops::cat(parts, dim);
}

}  // namespace

Sequence::Sequence(int64_t time, size_t ranks, Cut cut) : time_(time), of_(ranks) {
  if (time < 0 || ranks == 0)
    throw_invalid(fmt::format("[sequence] {} positions over {} ranks: give 0 positions at least, and a rank",
                              time, ranks));
  const auto n = static_cast<int64_t>(ranks);
  const int64_t pieces = cut == Cut::zigzag ? 2 * n : n;
  const auto add = [&](int64_t rank, int64_t piece) {
    const Positions p{internal::even_begin(time, piece, pieces), internal::even_size(time, piece, pieces)};
    auto& own = of_[static_cast<size_t>(rank)];
    if (!own.empty() && own.back().end() == p.from)
      own.back().size += p.size;  // in the middle
    else if (p.size)
      own.push_back(p);
  };
  for (int64_t r = 0; r < n; ++r) {
    add(r, r);
    if (cut == Cut::zigzag) add(r, pieces - 1 - r);
  }
}

std::vector<int64_t> Sequence::sizes() const {
  std::vector<int64_t> all;
  for (const auto& own : of_) {
    int64_t size = 0;
    for (const Positions& p : own) size += p.size;
    all.push_back(size);
  }
  return all;
}

void Sequence::check(const Tensor& x, int64_t dim) const {
  if (!x.defined() || dim < -x.dim() || dim >= x.dim() || x.size(dim) != time_)
    throw_invalid(fmt::format("[sequence] dimension {} of {} has no {} positions", dim,
                              x.defined() ? x.summary() : "an undefined tensor", time_));
}

Tensor Sequence::piece(const Tensor& x, int64_t dim, size_t rank) const {
  check(x, dim);
  Tensors parts;
  for (const Positions& p : of(rank)) parts.push_back(part(x, dim, p));
  return together(parts, x, dim);
}

Tensor Sequence::in_order(const Tensor& pieces, int64_t dim) const {
  check(pieces, dim);
  std::vector<std::pair<int64_t, Positions>> all;  // where in the sequence, and where in `pieces`
  int64_t at = 0;
  for (const auto& own : of_)
    for (const Positions& p : own) all.push_back({p.from, {std::exchange(at, at + p.size), p.size}});
  if (std::ranges::is_sorted(all, {}, [](const auto& x) { return x.first; })) return pieces;
  std::ranges::sort(all, {}, [](const auto& x) { return x.first; });
  Tensors parts;
  for (const auto& [from, p] : all) parts.push_back(part(pieces, dim, p));
  return together(parts, pieces, dim);
}

Tensor Sequence::by_ranks(const Tensor& x, int64_t dim) const {
  check(x, dim);
  Tensors parts;
  for (const auto& own : of_)
    for (const Positions& p : own) parts.push_back(part(x, dim, p));
  return together(parts, x, dim);
}

}  // namespace troupe::cp
