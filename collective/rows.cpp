#include "collective/rows.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/even_sizes.h"
#include "core/tensor/creation.h"

namespace troupe::internal::collective {

void check_tensor(std::string_view what, const Tensor& x) {
  if (!x.defined()) throw_invalid(fmt::format("[{}] the tensor is undefined", what));
}

DType check_list(std::string_view what, const Tensors& xs) {
  if (xs.empty()) throw_invalid(fmt::format("[{}] the list is empty: bring a tensor at least", what));
  for (const Tensor& x : xs) {
    check_tensor(what, x);
    if (x.device() != xs[0].device())
      throw_invalid(fmt::format("[{}] a list is on one device, and this one is on {} and {}: move it to one",
                                what, xs[0].device().str(), x.device().str()));
    if (x.dtype() != xs[0].dtype())
      throw_invalid(
          fmt::format("[{}] a list has one dtype, and this one has {} and {}: bring one list for each", what,
                      name(xs[0].dtype()), name(x.dtype())));
  }
  return xs[0].dtype();
}

Shape row_of(const Tensor& x) {
  Shape row = x.shape();
  if (!row.empty()) row.erase(0);
  return row;
}
Shape with_rows(int64_t rows, Shape row) {
  row.insert(0, rows);
  return row;
}
int64_t rows_of(const Tensor& x) { return x.dim() ? x.size(0) : 1; }

std::string rows_text(const std::vector<int64_t>& rows) {
  return fmt::format("{{{}}}", fmt::join(rows, ", "));
}

int64_t total_rows(std::string_view what, const std::vector<int64_t>& rows, const Shape& row) {
  int64_t all = 0, elements = 0;
  bool fits = true;
  for (const int64_t n : rows) fits &= n >= 0 && !__builtin_add_overflow(all, n, &all);
  if (!fits || __builtin_mul_overflow(all, row.numel(), &elements))
    throw_invalid(fmt::format("[{}] rows of {} are given as {}: no tensor has so many, or fewer than none",
                              what, row.str(), rows_text(rows)));
  return all;
}

std::vector<int64_t> divided(std::string_view what, int64_t all, const std::vector<int64_t>& rows,
                             Standing at) {
  if (rows.empty()) return even_sizes(all, at.ranks);
  if (rows.size() != at.ranks || total_rows(what, rows, {}) != all)
    throw_invalid(
        fmt::format("[{}] .rows = {} for {} ranks and a tensor of {} rows: give each rank's number, "
                    "{} together",
                    what, rows_text(rows), at.ranks, all, all));
  return rows;
}

std::vector<size_t> elements_of(const std::vector<int64_t>& rows, const Shape& row) {
  std::vector<size_t> all;
  for (const int64_t r : rows) all.push_back(static_cast<size_t>(r * row.numel()));
  return all;
}

Tensor own_rows(const Elements& elements, Range range, int64_t rows, const Shape& row, Device device) {
  const Shape shape = with_rows(rows, row);
  if (!range.size) return empty(shape, {elements.dtype(), device});
  const Tensor t = elements.read(range);
  return t.alias(shape, shape.contiguous_strides(), t.storage_offset()).clone_data();
}

}  // namespace troupe::internal::collective
