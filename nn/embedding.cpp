#include "nn/embedding.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "nn/init.h"
#include "ops/embedding_bag.h"
#include "ops/index.h"
#include "ops/view.h"

namespace troupe::nn {
namespace {

Tensor table(const char* layer, int64_t count, int64_t width, DType dtype) {
  if (count < 1 || width < 1)
    throw_invalid(fmt::format("[{}] sizes must be at least 1, got {} x {}", layer, count, width));
  return empty({count, width}, dtype).requires_grad_();
}

// A row that may be counted from the end.
std::optional<int64_t> row_of(const char* layer, std::optional<int64_t> row, int64_t count) {
  if (row && (*row < -count || *row >= count))
    throw_invalid(fmt::format("[{}] padding_idx must be in [-{}, {}), got {}", layer, count, count, *row));
  return row && *row < 0 ? *row + count : row;
}

void start_normal(const Tensor& weight, std::optional<int64_t> padding_idx, Generator& generator) {
  init::normal_(weight, 0, 1, generator);
  if (padding_idx) init::zeros_(weight.detach().select(0, *padding_idx));
}

}  // namespace

Embedding::Embedding(int64_t count, int64_t width, DType dtype, std::optional<int64_t> padding_idx)
    : weight(table("embedding", count, width, dtype)), padding_idx_(row_of("embedding", padding_idx, count)) {
  start();
}

Tensor Embedding::forward(const Tensor& ids) { return ops::embedding(ids, weight, padding_idx_); }

void Embedding::reset(Generator& generator) { start_normal(weight, padding_idx_, generator); }

std::string Embedding::str() const {
  return fmt::format("Embedding({}, {})", weight.size(0), weight.size(1));
}

EmbeddingBag::EmbeddingBag(int64_t count, int64_t width, const Options& o)
    : weight(table("embedding_bag", count, width, o.dtype)), options_(o) {
  if (o.mode != "sum" && o.mode != "mean" && o.mode != "max")
    throw_invalid(
        fmt::format("[embedding_bag] mode must be \"sum\", \"mean\" or \"max\", got \"{}\"", o.mode));
  options_.padding_idx = row_of("embedding_bag", o.padding_idx, count);
  start();
}

Tensor EmbeddingBag::forward(const Tensor& ids) {
  if (!ids.defined() || ids.dim() != 2)
    throw_invalid(fmt::format("[embedding_bag] got {}, expected ids [bags, n], or ids [n] with offsets",
                              ids.summary()));
  return ops::embedding_bag(ids, weight, {}, options_.mode, {}, false, options_.padding_idx);
}

Tensor EmbeddingBag::operator()(const Tensor& ids, const Tensor& offsets, const Tensor& per_sample_weights) {
  return seen(ops::embedding_bag(ids, weight, offsets, options_.mode, per_sample_weights,
                                 options_.include_last_offset, options_.padding_idx));
}

void EmbeddingBag::reset(Generator& generator) { start_normal(weight, options_.padding_idx, generator); }

std::string EmbeddingBag::str() const {
  return fmt::format("EmbeddingBag({}, {}, {})", weight.size(0), weight.size(1), options_.mode);
}

}  // namespace troupe::nn
