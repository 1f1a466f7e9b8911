// Fills a batch with the padding value, then copies each sequence to the start of its row.
#include "data/datasets/padding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/error.h"
#include "core/tensor/creation.h"

namespace troupe::datasets {
namespace {

const Tensor& checked(const std::vector<Tensor>& sequences, int64_t row) {
  if (row < 0 || row >= static_cast<int64_t>(sequences.size()))
    throw_invalid("[pad] row " + std::to_string(row) + " asked for, there are " +
                  std::to_string(sequences.size()) + " sequences");
  const Tensor& t = sequences[static_cast<size_t>(row)];
  if (!t.defined() || t.dim() == 0)
    throw_invalid("[pad] sequence " + std::to_string(row) + " is " + t.summary() +
                  ", expected [length, ...]");
  return t;
}

bool same_kind(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.dim() == b.dim() &&
         std::equal(a.shape().begin() + 1, a.shape().end(), b.shape().begin() + 1);
}

}  // namespace

Padded pad(const std::vector<Tensor>& sequences, const PadOptions& options) {
  return pad_rows(sequences, sequential(static_cast<int64_t>(sequences.size())), options);
}

Padded pad_rows(const std::vector<Tensor>& sequences, const Order& rows, const PadOptions& options) {
  if (rows.empty()) throw_invalid("[pad] no sequences to put in a batch");
  if (options.longest < 0)
    throw_invalid("[pad] longest " + std::to_string(options.longest) + ", expected 0 or more");
  const Tensor& first = checked(sequences, rows[0]);
  if (first.dtype() == int64 &&
      !(std::abs(options.value) <= 0x1p53 && options.value == std::trunc(options.value)))
    throw_invalid(fmt::format("[pad] the value {} cannot fill int64 sequences", options.value));
  int64_t longest = 0;
  for (const int64_t row : rows) {
    const Tensor& t = checked(sequences, row);
    if (!same_kind(first, t))
      throw_invalid("[pad] sequence " + std::to_string(row) + " is " + t.summary() +
                    ", expected it to be like " + first.summary() + " but for its length");
    longest = std::max(longest, t.size(0));
    if (options.longest > 0 && t.size(0) > options.longest && !options.cut)
      throw_invalid("[pad] sequence " + std::to_string(row) + " has the length " + std::to_string(t.size(0)) +
                    ", expected at most " + std::to_string(options.longest) +
                    "; PadOptions::cut shortens it");
  }
  if (options.longest > 0) longest = options.longest;

  const int64_t batch = static_cast<int64_t>(rows.size());
  Shape shape = first.shape();
  shape[0] = longest;
  shape.insert(0, batch);
  Padded out{full(shape, options.value, first.dtype()), empty({batch}, int64),
             zeros({batch, longest}, boolean)};
  const size_t stride = out.values.nbytes() / static_cast<size_t>(batch);
  const size_t step = longest == 0 ? 0 : stride / static_cast<size_t>(longest);
  for (int64_t i = 0; i < batch; ++i) {
    const Tensor t = sequences[static_cast<size_t>(rows[static_cast<size_t>(i)])].contiguous_data();
    const int64_t length = std::min(t.size(0), longest);
    if (const size_t bytes = static_cast<size_t>(length) * step; bytes > 0)
      std::memcpy(out.values.bytes() + static_cast<size_t>(i) * stride, t.bytes(), bytes);
    out.lengths.data<int64_t>()[i] = length;
    std::fill_n(out.mask.data<bool>() + i * longest, length, true);
  }
  return out;
}

std::vector<int64_t> lengths(const std::vector<Tensor>& sequences) {
  std::vector<int64_t> out;
  for (size_t i = 0; i < sequences.size(); ++i)
    out.push_back(checked(sequences, static_cast<int64_t>(i)).size(0));
  return out;
}

}  // namespace troupe::datasets
