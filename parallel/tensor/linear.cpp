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

}  // namespace troupe::tp

namespace troupe::internal::parallel {

LinearCut::LinearCut(const char* what, Group of, const nn::Linear& whole, int64_t d,
                     std::vector<int64_t> given)
    : group(std::move(of)),
      rank(tp::rank_in(group)),
      in(whole.weight.size(1)),
      out(whole.weight.size(0)),
      dim(d),
      has_bias(whole.bias.defined()),
      dtype(whole.weight.dtype()),
      sizes(tp::checked_sizes(what, dim ? in : out, group, std::move(given))) {}

}  // namespace troupe::internal::parallel

namespace troupe::tp {

// str() is part of tags, and so the same on all ranks.

ColumnLinear::ColumnLinear(Group group, int64_t in, int64_t out, const LinearOptions& o)
    : ColumnLinear(std::move(group), nn::Linear(in, out, o.bias, o.dtype), o.sizes) {}

ColumnLinear::ColumnLinear(Group group, const nn::Linear& whole, std::vector<int64_t> sizes)
    : cut_("column_linear", std::move(group), whole, 0, std::move(sizes)) {
  take(whole);
}

Placements ColumnLinear::placements() const {
  Placements all{{"weight", cut_.of_weight()}};
  if (cut_.has_bias) all.emplace("bias", Placement::cut({cut_.out}, 0, cut_.sizes, cut_.rank));
  return all;
}

void ColumnLinear::take(const nn::Linear& whole) {
  const auto places = placements();
  put(weight, places.at("weight").of(whole.weight), cut_.group);
  if (cut_.has_bias) put(bias, places.at("bias").of(whole.bias), cut_.group);
}

void ColumnLinear::reset(Generator& generator) { take(cut_.drawn(generator)); }

Tensor ColumnLinear::forward(const Tensor& x) {
  return ops::linear(enter(x, cut_.group, cut_.group.size() > 1 ? str() : ""), weight, bias);
}

int64_t ColumnLinear::first() const { return cut_.of_weight().ranges[0].from; }

std::string ColumnLinear::str() const { return fmt::format("ColumnLinear({}, {})", cut_.in, cut_.out); }

RowLinear::RowLinear(Group group, int64_t in, int64_t out, const LinearOptions& o)
    : RowLinear(std::move(group), nn::Linear(in, out, o.bias, o.dtype), o.sizes) {}

RowLinear::RowLinear(Group group, const nn::Linear& whole, std::vector<int64_t> sizes)
    : cut_("row_linear", std::move(group), whole, 1, std::move(sizes)) {
  take(whole);
}

Placements RowLinear::placements() const { return {{"weight", cut_.of_weight()}}; }

std::vector<std::string> RowLinear::elsewhere() const {
  return cut_.has_bias && cut_.rank ? std::vector<std::string>{"bias"} : std::vector<std::string>();
}

void RowLinear::take(const nn::Linear& whole) {
  put(weight, cut_.of_weight().of(whole.weight), cut_.group);
  if (cut_.has_bias && cut_.rank == 0) put(bias, whole.bias.detach(), cut_.group);
}

void RowLinear::reset(Generator& generator) { take(cut_.drawn(generator)); }

Part RowLinear::operator()(const Tensor& x) {
  return {ops::linear(x, weight, bias), cut_.group, cut_.group.size() > 1 ? str() : ""};
}

std::string RowLinear::str() const { return fmt::format("RowLinear({}, {})", cut_.in, cut_.out); }

}  // namespace troupe::tp
