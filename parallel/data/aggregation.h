// What is made of the gradients of all members of a group, where it is not their sum: a median, say.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "parallel/server/compression/bucket.h"
#include "parallel/server/compression/named_functions.h"

namespace troupe::parallel {

/// From what all members have for some elements, a row of [members, elements] for each, to what all take:
/// [elements], of the same dtype and device. Coordinate by coordinate: each member runs it for a part of the
/// elements. What it throws fails the operation on all members.
using AggregationRule = std::function<Tensor(const Tensor& of_members)>;

/// A rule that options name: "name", or "name(0.1)", whose 0.1 `make` gets and may refuse. Every worker
/// registers it before it is used. `invalid` if the name is taken.
void register_aggregation(const std::string& name,
                          internal::parallel::NamedFunctions<AggregationRule>::Make make);
/// "mean" gives none: it is the sum of weighted parts. Else one that was registered, or: "median", of an even
/// number of members the mean of the two in the middle; "trimmed_mean(f)", the mean without the fraction f of
/// the members (rounded down) that has the smallest elements, and as many of the largest; "clipped_mean(c)",
/// the mean of elements that are clipped to [-c, c]. NaN counts as larger than all numbers in the first two,
/// and as 0 in the last. `invalid` for other texts.
AggregationRule aggregation_named(const std::string& text);

/// The rule applied to the tensors of all members of a group, of one dtype; in a method of each. A member
/// sends what an all_reduce over a ring would send. `tag`: of no other operation of the group, ever.
Task<Tensors> aggregate(Group group, Tensors mine, AggregationRule rule, std::string tag);

/// The reduction of a bucket by that rule, of members that have as many rows each.
BucketReduction aggregated(AggregationRule rule);

}  // namespace troupe::parallel
