#include "autograd/distributed/optim/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "data/checkpoint/assembly.h"

namespace troupe::optim {

Placement Placement::cut(const Shape& whole, int64_t dim, const std::vector<int64_t>& sizes, size_t rank) {
  Range mine;
  for (size_t r = 0; r < rank; ++r) mine.from += sizes[r];
  mine.size = sizes[rank];
  return {whole, dim, {mine}};
}

std::vector<int64_t> Placement::numbers() const {
  const Run has = run.value_or(Run{0, local().numel()});
  std::vector<int64_t> out{whole.rank()};
  out.insert(out.end(), whole.begin(), whole.end());
  out.insert(out.end(), {dim, run.has_value(), has.from, has.count});
  for (const auto& r : ranges) out.insert(out.end(), {r.from, r.size});
  return out;
}

Placement Placement::of_numbers(const std::vector<int64_t>& numbers, const std::string& what) {
  const auto wrong = [&] { throw_invalid(what + " is none of a piece"); };
  size_t at = 0;
  const auto next = [&] {
    if (at == numbers.size()) wrong();
    return numbers[at++];
  };
  const int64_t rank = next();
  if (rank < 0 || rank > static_cast<int64_t>(numbers.size())) wrong();
  Placement p;
  std::vector<int64_t> shape;
  for (int64_t i = 0; i < rank; ++i) shape.push_back(next());
  p.whole = Shape(shape);
  p.dim = next();
  const bool has_run = next() != 0;
  const Run run{next(), next()};
  while (at < numbers.size()) {
    const int64_t from = next(), size = next();
    p.ranges.push_back({from, size});
    if (p.dim < 0 || p.dim >= rank || from < 0 || size < 0 || from > shape[static_cast<size_t>(p.dim)] - size)
      wrong();
  }
  if (std::ranges::any_of(shape, [](int64_t n) { return n < 0; })) wrong();
  if (run.from < 0 || run.count < 0 || run.from > p.local().numel() - run.count) wrong();
  if (has_run) p.run = run;
  return p;
}

Shape Placement::local() const {
  Shape shape = whole;
  if (ranges.empty()) return shape;
  int64_t size = 0;
  for (const auto& r : ranges) size += r.size;
  shape[static_cast<int>(dim)] = size;
  return shape;
}

void Placement::for_each_run(const std::function<void(int64_t, int64_t, int64_t)>& f) const {
  const auto [from, count] = run.value_or(Run{0, local().numel()});
  const int64_t end = from + count;
  if (ranges.empty()) {
    if (count > 0) f(from, 0, count);
    return;
  }
  int64_t outer = 1, inner = 1, at = 0;
  for (int i = 0; i < whole.rank(); ++i) (i < dim ? outer : inner) *= i == dim ? 1 : whole[i];
  for (int64_t o = 0; o < outer; ++o)
    for (const auto& r : ranges) {
      const int64_t a = std::max(at, from), b = std::min(at + r.size * inner, end);
      if (a < b) f((o * whole[static_cast<int>(dim)] + r.from) * inner + a - at, a - from, b - a);
      at += r.size * inner;
    }
}

Tensor Placement::of(const Tensor& parameter) const {
  if (parameter.shape() != whole)
    throw_invalid(
        fmt::format("[placement] the whole parameter is {}, expected {}", parameter.summary(), whole.str()));
  using datasets::detail::at_element;
  const Tensor all = parameter.detach().data_on(cpu).contiguous_data();
  const Tensor out = empty(shape(), all.dtype());
  for_each_run([&](int64_t in_whole, int64_t here, int64_t n) {
    std::memcpy(at_element(out, here), at_element(all, in_whole),
                static_cast<size_t>(n) * item_size(all.dtype()));
  });
  return out.data_on(parameter.device());
}

Placement fitted(const Placements& placements, const std::string& parameter, const Shape& shape,
                 const std::string& what) {
  const auto at = placements.find(parameter);
  if (shape.empty() || at == placements.end()) return {shape};
  Placement p = at->second;
  if (shape == p.local()) {
    p.run = {};
    return p;
  }
  if (p.run && shape == p.shape()) return p;
  throw_invalid(fmt::format("{} is {}, expected {}, or a piece of {} elements", what, shape.str(),
                            p.local().str(), p.shape().numel()));
}

}  // namespace troupe::optim
