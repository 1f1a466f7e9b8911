#include "parallel/tensor/vocabulary.h"

#include <fmt/format.h>

#include <limits>
#include <numeric>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "nn/embedding.h"
#include "ops/ops.h"

namespace troupe::tp {

namespace {

// Which of the ids are among [first, first + size), as int64, and their numbers there: 0 for the others.
struct Own {
  Tensor mask, rows;
  Own(const Tensor& ids, int64_t first, int64_t size)
      : mask(ops::mul(ops::ge(ids, first).to(int64), ops::lt(ids, first + size).to(int64))),
        rows(ops::mul(ops::sub(ids, first), mask)) {}
};

void check_ids(const char* what, const Tensor& ids, int64_t count) {
  if (!ids.defined() || ids.dtype() != int64)
    throw_invalid(fmt::format("[{}] got {}, expected int64", what, ids.summary()));
  if (!ids.numel()) return;
  const auto low = ops::amin(ops::reshape(ids, {-1}), {0}).item<int64_t>();
  const auto high = ops::amax(ops::reshape(ids, {-1}), {0}).item<int64_t>();
  if (low < 0 || high >= count)
    throw_invalid(fmt::format("[{}] {} is none of {}", what, low < 0 ? low : high, count));
}

int64_t first_of(const std::vector<int64_t>& sizes, size_t rank) {
  return std::accumulate(sizes.begin(), sizes.begin() + static_cast<ptrdiff_t>(rank), int64_t{0});
}

}  // namespace

VocabularyEmbedding::VocabularyEmbedding(Group group, int64_t count, int64_t width, const LinearOptions& o)
    : group_(std::move(group)),
      rank_(rank_in(group_)),
      count_(count),
      width_(width),
      dtype_(o.dtype),
      sizes_(checked_sizes("vocabulary_embedding", count, group_, o.sizes)) {
  const nn::Embedding whole(count, width, dtype_);
  put(weight, placements().at("weight").of(whole.weight), group_);
}

Placements VocabularyEmbedding::placements() const {
  return {{"weight", Placement::cut({count_, width_}, 0, sizes_, rank_)}};
}

void VocabularyEmbedding::reset(Generator& generator) {
  nn::Embedding whole(count_, width_, dtype_);
  whole.reset(generator);
  put(weight, placements().at("weight").of(whole.weight), group_);
}

Part VocabularyEmbedding::operator()(const Tensor& ids) {
  check_ids("vocabulary_embedding", ids, count_);
  const std::string layer = group_.size() > 1 ? str() : "";
  if (!sizes_[rank_]) {
    Shape shape = ids.shape();
    shape.push_back(width_);
    return {zeros(shape, {dtype_, ids.device()}), group_, layer};
  }
  const Own own(ids, first_of(sizes_, rank_), sizes_[rank_]);
  return {ops::mul(ops::embedding(own.rows, weight), ops::unsqueeze(own.mask, -1).to(dtype_)), group_, layer};
}

std::string VocabularyEmbedding::str() const {
  return fmt::format("VocabularyEmbedding({}, {})", count_, width_);
}

// With z the logits, top the largest and t the target's: log(sum(exp(z - top))) + top - t. The sum and t add
// up over the ranks.
Task<Tensor> cross_entropy(Tensor logits, Tensor targets, Group group, std::vector<int64_t> sizes) {
  const int64_t classes = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  const size_t rank = rank_in(group);
  const int64_t mine = sizes.at(rank);
  check_ids("cross_entropy", targets, classes);
  if (logits.dim() < 1 || logits.size(-1) != mine || logits.numel() != targets.numel() * mine)
    throw_invalid(fmt::format("[cross_entropy] logits {} and targets {}: expected [.., {}] and [..]",
                              logits.summary(), targets.summary(), mine));
  const int64_t rows = targets.numel();
  const Tensor z = ops::reshape(logits, {rows, mine}), t = ops::reshape(targets, {rows});
  Tensor top =
      mine ? ops::amax(z.detach(), {1}) : full({rows}, -std::numeric_limits<double>::infinity(), z.options());
  const Future<Tensor> finding = largest(top, group, "cross_entropy");
  top = co_await finding;
  Tensor target;
  if (mine) {
    const Own own(t, first_of(sizes, rank), mine);
    const Tensor found = ops::reshape(ops::gather(z, 1, ops::unsqueeze(own.rows, 1)), {rows});
    target = ops::mul(found, own.mask.to(z.dtype()));
  } else {
    target = zeros({rows}, z.options());
  }
  const Tensor exponentials = ops::sum(ops::exp(ops::sub(z, ops::unsqueeze(top, 1))), {1});
  const Future<Tensor> summing = sum(ops::stack({exponentials, target}, 0), group, "cross_entropy");
  const Tensor sums = co_await summing;
  const Tensor losses = ops::sub(ops::add(ops::log(ops::select(sums, 0, 0)), top), ops::select(sums, 0, 1));
  co_return ops::mean(losses);
}

}  // namespace troupe::tp
