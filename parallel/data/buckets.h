// How gradients are put together for one reduction: a pure function of the parameters.
#pragma once
#include <cstddef>
#include <vector>

#include "core/tensor/tensor.h"

namespace troupe::parallel {

struct BucketSizes {
  size_t first = size_t{1} << 20;  ///< bytes of the first one, which begins the reduction early
  size_t others = size_t{25} << 20;
};

/// Numbers of the parameters of each bucket. In `order`, which has each of them once; all of one dtype and
/// device; as large as it may be, or of one parameter.
std::vector<std::vector<size_t>> buckets_of(const Tensors& parameters, const std::vector<size_t>& order,
                                            const BucketSizes& sizes);
/// No order gives more than that.
size_t most_buckets(const Tensors& parameters, const BucketSizes& sizes);

}  // namespace troupe::parallel
