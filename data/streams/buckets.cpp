#include "data/streams/buckets.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.h"

namespace troupe::datasets::detail {
namespace {

int64_t length_of(const Sample& sample, const std::string& field) {
  const auto at = sample.find(field);
  if (at != sample.end()) {
    if (const auto* t = at->second.get_if<Tensor>(); t && t->dim() > 0) return t->size(0);
    if (const auto* text = at->second.get_if<std::string>()) return std::ssize(*text);
  }
  throw_invalid(
      fmt::format("[stream] bucket: the field \"{}\" of a sample is {}, expected a tensor with a first "
                  "dimension, or text",
                  field, at == sample.end() ? "not there" : at->second.describe()));
}

}  // namespace

void put_in_buckets(std::vector<Sample>& samples, const std::string& field,
                    const std::vector<int64_t>& boundaries, int64_t rows) {
  std::vector<std::vector<size_t>> buckets(boundaries.size() + 1);
  std::vector<size_t> order;
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto at = std::ranges::lower_bound(boundaries, length_of(samples[i], field)) - boundaries.begin();
    auto& bucket = buckets[static_cast<size_t>(at)];
    bucket.push_back(i);
    if (std::ssize(bucket) < rows) continue;
    order.insert(order.end(), bucket.begin(), bucket.end());
    bucket.clear();
  }
  for (const auto& bucket : buckets) order.insert(order.end(), bucket.begin(), bucket.end());
  std::vector<Sample> out;
  for (const size_t i : order) out.push_back(std::move(samples[i]));
  samples = std::move(out);
}

}  // namespace troupe::datasets::detail
