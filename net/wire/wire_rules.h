// The limits of the wire format that both directions check.
#pragma once
#include <cstddef>
#include <cstdint>

#include "net/wire/wire.h"

namespace troupe::internal::net {

/// What a packet is: the low bits of its first word. See net/wire/wire.capnp for these and the flags.
enum class PacketKind : uint8_t {
  call = 1,
  kept = 2,
  reply = 3,
  error = 4,
  cancel = 5,
  started = 6,
  handed_over = 7,
  // Calls and kept results of callers with mixed precision, by its mode.
  call_bfloat16 = 8,
  kept_bfloat16 = 9,
  call_float16 = 10,
  kept_float16 = 11
};
inline constexpr uint8_t kInHalves = 7;  // from `call` to `call_bfloat16`; 2 more: to `call_float16`
inline constexpr uint64_t kKindMask = 15, kFlagMask = 15 << 4;
inline constexpr uint64_t kGradDisabled = 16, kNoResult = 32, kNotifyStart = 64, kJoint = 128;  // of calls
inline constexpr uint64_t kElsewhere = 16;                                                      // of replies
inline constexpr int kIdShift = 8;

/// Values in each other, counting the leaf.
inline constexpr int kMaxValueDepth = 32;
/// Of one packet, without its tensors: 512 MiB, which is what one Cap'n Proto list can count. Transports
/// allow less.
inline constexpr size_t kMaxHeaderWords = size_t{1} << 26;
/// A hundred years: added to any clock, it does not overflow nanoseconds.
inline constexpr int64_t kMaxTimeoutUs = int64_t{100} * 366 * 24 * 3600 * 1'000'000;
/// Buffer number of an undefined tensor.
inline constexpr uint32_t kNoBuffer = 0xffffffff;
/// In a tensor's device: its bytes come beside the message.
inline constexpr uint16_t kBeside = 0x8000;

/// `invalid` unless every number is below `tensors`, none comes twice, and only a link with a pair has any.
void check_link(const GradLink& link, size_t tensors);
/// `invalid` if a byte is neither 0 nor 1.
void check_booleans(const std::byte* bytes, size_t size);

}  // namespace troupe::internal::net
