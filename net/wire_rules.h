// The limits of the wire format that both directions check.
#pragma once
#include <cstddef>
#include <cstdint>

#include "net/wire.h"

namespace troupe::net {

/// Values in each other, counting the leaf.
inline constexpr int kMaxValueDepth = 32;
/// Of one packet, without its tensors: 512 MiB, which is what one Cap'n Proto list can count. Transports
/// allow less.
inline constexpr size_t kMaxHeaderWords = size_t{1} << 26;
/// A hundred years: added to any clock, it does not overflow nanoseconds.
inline constexpr int64_t kMaxTimeoutUs = int64_t{100} * 366 * 24 * 3600 * 1'000'000;
/// Buffer number of an undefined tensor.
inline constexpr uint32_t kNoBuffer = 0xffffffff;

/// `invalid` unless every number is below `tensors`, none comes twice, and only a link with a pair has any.
void check_link(const GradLink& link, size_t tensors);
/// `invalid` if a byte is neither 0 nor 1.
void check_booleans(const std::byte* bytes, size_t size);

}  // namespace troupe::net
