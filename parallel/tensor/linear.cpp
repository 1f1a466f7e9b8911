#include "parallel/tensor/linear.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "ops/ops.h"

namespace troupe::tp {

size_t rank_in(const Group& group) { return group.size() <= 1 ? 0 : group.rank(); }

std::vector<int64_t> checked_sizes(const char* what, int64_t n, const Group& group,
                                   std::vector<int64_t> sizes) {
  const size_t ranks = std::max<size_t>(group.size(), 1);
  if (sizes.empty()) return even_sizes(n, ranks);
  if (sizes.size() == ranks && std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == n &&
      std::ranges::all_of(sizes, [](int64_t s) { return s >= 0; }))
    return sizes;
  throw_invalid(fmt::format("[{}] sizes {} do not cut {} for {} ranks", what, sizes, n, ranks));
}

// str() is part of tags, and so the same on all ranks.

ColumnLinear::ColumnLinear(Group group, int64_t in, int64_t out, const LinearOptions& o)
    : ColumnLinear(std::move(group), nn::Linear(in, out, o.bias, o.dtype), o.sizes) {}

ColumnLinear::ColumnLinear(Group group, const nn::Linear& whole, std::vector<int64_t> sizes)
    : group_(std::move(group)),
      rank_(rank_in(group_)),
      in_(whole.weight.size(1)),
      out_(whole.weight.size(0)),
      has_bias_(whole.bias.defined()),
      dtype_(whole.weight.dtype()),
      sizes_(checked_sizes("column_linear", out_, group_, std::move(sizes))) {
  take(whole);
}

std::map<std::string, Placement> ColumnLinear::placements() const {
  std::map<std::string, Placement> all{{"weight", Placement::cut({out_, in_}, 0, sizes_, rank_)}};
  if (has_bias_) all.emplace("bias", Placement::cut({out_}, 0, sizes_, rank_));
  return all;
}

void ColumnLinear::take(const nn::Linear& whole) {
  const auto places = placements();
  put(weight, places.at("weight").of(whole.weight));
  if (has_bias_) put(bias, places.at("bias").of(whole.bias));
}

void ColumnLinear::reset(Generator& generator) { take(nn::Linear(in_, out_, generator, has_bias_, dtype_)); }

Tensor ColumnLinear::forward(const Tensor& x) {
  count_copies_once(rank_);
  return ops::linear(enter(x, group_, group_.size() > 1 ? str() : ""), weight, bias);
}

int64_t ColumnLinear::first() const {
  return std::accumulate(sizes_.begin(), sizes_.begin() + static_cast<ptrdiff_t>(rank_), int64_t{0});
}

std::string ColumnLinear::str() const { return fmt::format("ColumnLinear({}, {})", in_, out_); }

RowLinear::RowLinear(Group group, int64_t in, int64_t out, const LinearOptions& o)
    : RowLinear(std::move(group), nn::Linear(in, out, o.bias, o.dtype), o.sizes) {}

RowLinear::RowLinear(Group group, const nn::Linear& whole, std::vector<int64_t> sizes)
    : group_(std::move(group)),
      rank_(rank_in(group_)),
      in_(whole.weight.size(1)),
      out_(whole.weight.size(0)),
      has_bias_(whole.bias.defined()),
      dtype_(whole.weight.dtype()),
      sizes_(checked_sizes("row_linear", in_, group_, std::move(sizes))) {
  take(whole);
}

std::map<std::string, Placement> RowLinear::placements() const {
  return {{"weight", Placement::cut({out_, in_}, 1, sizes_, rank_)}};
}

std::vector<std::string> RowLinear::elsewhere() const {
  return has_bias_ && rank_ ? std::vector<std::string>{"bias"} : std::vector<std::string>();
}

void RowLinear::take(const nn::Linear& whole) {
  put(weight, placements().at("weight").of(whole.weight));
  if (has_bias_ && rank_ == 0) put(bias, whole.bias.detach());
}

void RowLinear::reset(Generator& generator) { take(nn::Linear(in_, out_, generator, has_bias_, dtype_)); }

Part RowLinear::operator()(const Tensor& x) {
  count_copies_once(rank_);
  return {ops::linear(x, weight, bias), group_, group_.size() > 1 ? str() : ""};
}

std::string RowLinear::str() const { return fmt::format("RowLinear({}, {})", in_, out_); }

}  // namespace troupe::tp
