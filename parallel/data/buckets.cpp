#include "parallel/data/buckets.h"

#include <algorithm>

namespace troupe::parallel {

std::vector<std::vector<size_t>> buckets_of(const Tensors& parameters, const std::vector<size_t>& order,
                                            const BucketSizes& sizes) {
  struct Open {  // the last bucket of a dtype and device
    size_t number, bytes;
    DType dtype;
    Device device;
  };
  std::vector<std::vector<size_t>> buckets;
  std::vector<Open> open;
  for (const size_t i : order) {
    const Tensor& p = parameters[i];
    auto at = std::ranges::find_if(
        open, [&](const Open& o) { return o.dtype == p.dtype() && o.device == p.device(); });
    if (at == open.end()) at = open.insert(at, {SIZE_MAX, 0, p.dtype(), p.device()});
    const size_t limit = at->number == 0 ? sizes.first : sizes.others;
    if (at->number == SIZE_MAX || at->bytes + p.nbytes() > limit) {
      at->number = buckets.size();
      at->bytes = 0;
      buckets.emplace_back();
    }
    buckets[at->number].push_back(i);
    at->bytes += p.nbytes();
  }
  return buckets;
}

size_t most_buckets(const Tensors& parameters, const BucketSizes& sizes) {
  struct Kind {
    DType dtype;
    Device device;
    size_t count = 0, bytes = 0;
  };
  std::vector<Kind> kinds;
  for (const Tensor& p : parameters) {
    auto at = std::ranges::find_if(
        kinds, [&](const Kind& k) { return k.dtype == p.dtype() && k.device == p.device(); });
    if (at == kinds.end()) at = kinds.insert(at, {p.dtype(), p.device()});
    ++at->count;
    at->bytes += p.nbytes();
  }
  // Two neighbours of a kind are larger than one may be.
  const size_t limit = std::max(std::min(sizes.first, sizes.others), size_t{1});
  size_t most = 0;
  for (const Kind& k : kinds) most += std::min(k.count, 2 * (k.bytes / limit) + 1);
  return most;
}

}  // namespace troupe::parallel
