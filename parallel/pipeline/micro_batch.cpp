#include "parallel/pipeline/micro_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

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

namespace {

// Parts of these sizes along a dimension, which has their sum in all tensors that have it.
std::vector<Value> cut(const Value& batch, int dim, const std::vector<int64_t>& sizes) {
  std::vector<Value> parts;
  int64_t begin = 0;
  for (const int64_t own : sizes) {
    Value part = batch;
    visit_tensors(part, [&](Tensor& t) {
      if (!t.defined() || t.dim() <= dim) return;
      Shape shape = t.shape();
      shape[dim] = own;
      t = t.alias(shape, t.strides(), t.storage_offset() + begin * t.strides()[dim]);
    });
    parts.push_back(std::move(part));
    begin += own;
  }
  return parts;
}

}  // namespace

std::vector<Value> split_batch(const Value& batch, int count, const char* what) {
  const int64_t rows = rows_of(batch, what);
  if (rows < count)
    throw_invalid(fmt::format("[pipeline] {}: {} rows, fewer than the {} micro-batches", what, rows, count));
  return cut(batch, 0, internal::even_sizes(rows, static_cast<size_t>(count)));
}

std::vector<Value> split_batch(const Value& batch, const std::vector<int64_t>& sizes) {
  return cut(batch, 0, sizes);
}

int64_t positions_of(const Value& slice, const char* what) {
  Value copy = slice;  // handles; visit_tensors() may write
  int64_t positions = -1;
  visit_tensors(copy, [&](Tensor& t) {
    if (!t.defined() || t.dim() < 2) return;
    if (positions >= 0 && t.size(1) != positions)
      throw_invalid(fmt::format(
          "[pipeline] the tensors of {} have {} and {} positions: slices are cut along the second dimension",
          what, positions, t.size(1)));
    positions = t.size(1);
  });
  if (positions < 0)
    throw_invalid(
        fmt::format("[pipeline] {} ({}) has no tensor with a second dimension that could be cut into slices",
                    what, slice.describe()));
  return positions;
}

void check_positions(const std::vector<Value>& batch, const std::vector<Value>& targets) {
  for (size_t i = 0; i < batch.size(); ++i) {
    const int64_t has = positions_of(batch[i], "the batch"), wanted = positions_of(targets[i], "the targets");
    if (has != wanted)
      throw_invalid(
          fmt::format("[pipeline] a slice has {} positions and its targets have {}: with slices the second "
                      "dimension of both is that of the sequence, a target for each position",
                      has, wanted));
  }
}

std::vector<Value> slice_batch(const Value& batch, int count, int slices, const char* what) {
  std::vector<Value> parts = split_batch(batch, count, what);
  if (slices == 1) return parts;
  std::vector<Value> out;
  for (const Value& part : parts) {
    const int64_t positions = positions_of(part, what);
    if (positions < slices)
      throw_invalid(
          fmt::format("[pipeline] {}: {} positions, fewer than the {} slices", what, positions, slices));
    for (Value& slice : cut(part, 1, internal::even_sizes(positions, static_cast<size_t>(slices))))
      out.push_back(std::move(slice));
  }
  return out;
}

std::vector<double> weights_of_slices(const std::vector<Value>& parts, int slices,
                                      const std::vector<double>& of_micro_batches) {
  const auto count = static_cast<size_t>(slices);
  if (!of_micro_batches.empty() && of_micro_batches.size() * count != parts.size()) return of_micro_batches;
  std::vector<double> all;
  for (size_t m = 0; m < parts.size(); m += count) {
    const double whole = of_micro_batches.empty() ? static_cast<double>(rows_of(parts[m], "a micro-batch"))
                                                  : of_micro_batches[m / count];
    if (slices == 1) {
      all.push_back(whole);
      continue;
    }
    std::vector<double> positions;
    for (size_t i = m; i < m + count; ++i)
      positions.push_back(static_cast<double>(positions_of(parts[i], "a micro-batch")));
    const double sum = std::accumulate(positions.begin(), positions.end(), 0.0);
    for (const double p : positions) all.push_back(whole * p / sum);
  }
  return all;
}

}  // namespace troupe::parallel
