#include "parallel/data/buckets.h"

#include <algorithm>

namespace troupe::parallel {

std::vector<std::vector<size_t>> buckets_of(const Tensors& parameters, const BucketSizes& sizes) {
  struct Open {  // the last bucket of a dtype and device
    size_t number, bytes;
    DType dtype;
    Device device;
  };
  std::vector<std::vector<size_t>> buckets;
  std::vector<Open> open;
  for (size_t i = parameters.size(); i-- > 0;) {
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

}  // namespace troupe::parallel
