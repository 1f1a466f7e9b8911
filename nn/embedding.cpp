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

}  // namespace

Embedding::Embedding(int64_t count, int64_t width, DType dtype, std::optional<int64_t> padding_idx)
    : weight(table("embedding", count, width, dtype)), padding_idx_(padding_idx) {
  if (padding_idx_ && (*padding_idx_ < -count || *padding_idx_ >= count))
    throw_invalid(
        fmt::format("[embedding] padding_idx must be in [-{0}, {0}), got {1}", count, *padding_idx_));
  if (padding_idx_ && *padding_idx_ < 0) *padding_idx_ += count;
  start();
}

Tensor Embedding::forward(const Tensor& ids) { return ops::embedding(ids, weight, padding_idx_); }

void Embedding::reset(Generator& generator) {
  init::normal_(weight, 0, 1, generator);
  if (padding_idx_) init::zeros_(weight.detach().select(0, *padding_idx_));
}

std::string Embedding::str() const {
  return fmt::format("Embedding({}, {})", weight.size(0), weight.size(1));
}

EmbeddingBag::EmbeddingBag(int64_t count, int64_t width, std::string mode, DType dtype)
    : weight(table("embedding_bag", count, width, dtype)), mode_(std::move(mode)) {
  if (mode_ != "sum" && mode_ != "mean")
    throw_invalid(fmt::format("[embedding_bag] mode must be \"sum\" or \"mean\", got \"{}\"", mode_));
  start();
}

Tensor EmbeddingBag::forward(const Tensor& ids) {
  if (!ids.defined() || ids.dim() != 2)
    throw_invalid(fmt::format("[embedding_bag] got {}, expected ids [bags, n], or ids [n] with offsets",
                              ids.summary()));
  return ops::embedding_bag(ids, weight, {}, mode_);
}

Tensor EmbeddingBag::operator()(const Tensor& ids, const Tensor& offsets) {
  return seen(ops::embedding_bag(ids, weight, offsets, mode_));
}

void EmbeddingBag::reset(Generator& generator) { init::normal_(weight, 0, 1, generator); }

std::string EmbeddingBag::str() const {
  return fmt::format("EmbeddingBag({}, {}, {})", weight.size(0), weight.size(1), mode_);
}

}  // namespace troupe::nn
