// Samples of similar length together.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/streams/source.h"

namespace troupe::datasets::detail {

/// Puts samples into an order in which each so many `rows` are a batch of one bucket, as far as there are as
/// many in it; the rest comes last, by bucket. `invalid` for a sample without the field, or without a length.
void put_in_buckets(std::vector<Sample>& samples, const std::string& field,
                    const std::vector<int64_t>& boundaries, int64_t rows);

}  // namespace troupe::datasets::detail
