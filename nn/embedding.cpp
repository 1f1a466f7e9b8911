#include "nn/embedding.h"

#include <fmt/format.h>

#include "core/error.h"
#include "nn/init.h"
#include "ops/index.h"

namespace troupe::nn {
namespace {

Tensor table(const char* layer, int64_t count, int64_t width, DType dtype) {
  if (count < 1 || width < 1)
    throw_invalid(fmt::format("[{}] sizes must be at least 1, got {} x {}", layer, count, width));
  const Tensor t = Tensor::empty({count, width}, dtype);
  Generator start(0);
  normal_(t, 0, 1, start);
  return Tensor(t).set_requires_grad();
}

}  // namespace

Embedding::Embedding(int64_t count, int64_t width, DType dtype)
    : weight(table("embedding", count, width, dtype)) {}

Tensor Embedding::forward(const Tensor& ids) { return ops::embedding(ids, weight); }

void Embedding::reset(Generator& generator) { normal_(weight, 0, 1, generator); }

std::string Embedding::str() const {
  return fmt::format("Embedding({}, {})", weight.size(0), weight.size(1));
}

}  // namespace troupe::nn
