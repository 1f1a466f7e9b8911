#include "parallel/pipeline/micro_batch.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/even_sizes.h"

namespace troupe::parallel {

int64_t rows_of(const Value& batch, const char* what) {
  Value copy = batch;  // handles; visit_tensors() may write
  int64_t rows = -1;
  visit_tensors(copy, [&](Tensor& t) {
    if (!t.defined() || t.dim() == 0) return;
    if (rows >= 0 && t.size(0) != rows)
      throw_invalid(fmt::format(
          "[pipeline] the tensors of {} have {} and {} rows: the first dimension is that of the batch", what,
          rows, t.size(0)));
    rows = t.size(0);
  });
  if (rows < 0)
    throw_invalid(fmt::format("[pipeline] {} ({}) has no tensor that could be cut into micro-batches", what,
                              batch.describe()));
  return rows;
}

void check_rows(const Value& batch, const Value& targets, int count) {
  const int64_t rows = rows_of(batch, "the batch"), wanted = rows_of(targets, "the targets");
  if (rows == wanted) return;
  const auto [fewer, more] = std::minmax(rows, wanted);
  if (fewer > 0 && more % fewer == 0 && fewer % count == 0) return;
  throw_invalid(
      fmt::format("[pipeline] the batch has {} rows and the targets have {}: expected a target for "
                  "each row",
                  rows, wanted));
}

std::vector<Value> split_batch(const Value& batch, int count, const char* what) {
  const int64_t rows = rows_of(batch, what);
  if (rows < count)
    throw_invalid(fmt::format("[pipeline] {}: {} rows, fewer than the {} micro-batches", what, rows, count));
  std::vector<Value> parts;
  int64_t begin = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t size = internal::even_size(rows, i, count);
    Value part = batch;
    visit_tensors(part, [&](Tensor& t) {
      if (!t.defined() || t.dim() == 0) return;
      Shape shape = t.shape();
      shape[0] = size;
      t = t.alias(shape, t.strides(), t.storage_offset() + begin * t.strides()[0]);
    });
    parts.push_back(std::move(part));
    begin += size;
  }
  return parts;
}

}  // namespace troupe::parallel
