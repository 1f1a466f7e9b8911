// Compressions of a program's own, which replicas know by name.
#pragma once
#include <optional>
#include <string>

#include "parallel/server/compression/bucket.h"
#include "parallel/server/compression/named_functions.h"

namespace troupe::parallel {

/// Compression::parse(name), or "name(3)", is a way of reducing gradients of one's own from now on: `make`
/// gets the 3, and may refuse it. Every worker registers it before replicas are made, and so does whoever
/// makes them. `invalid` if the name is taken.
/// docs/howto/data-parallel.md has one.
void register_compression(const std::string& name,
                          internal::parallel::NamedFunctions<BucketReduction>::Make make);
/// Null: there is no such name. `invalid` if its number is refused.
BucketReduction own_compression(const std::string& text);
/// "powersgd", and those that were registered, for errors.
std::string own_compressions();

/// Gradients of matrices [n, m] as products of [n, rank] and [rank, m], of which both factors are summed
/// (PowerSGD: Vogels, Karimireddy, Jaggi 2019, as in PyTorch's powerSGD_hook with start_powerSGD_iter = 0):
/// with error feedback, and the factor of the last pass as the start. Tensors of more dimensions are
/// [first, all others]. Those that would not be half as large travel whole.
BucketReduction power_sgd(std::optional<double> rank);
/// The rank in "powersgd(2)".
int64_t power_sgd_rank(const std::string& text);
/// Elements that a member brings to the sums for a gradient of that shape.
int64_t power_sgd_elements(const Shape& shape, int64_t rank);

}  // namespace troupe::parallel
