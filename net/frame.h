// The bytes around a message on a stream: a prefix that says how much follows, checked before memory is
// taken.
//
//   prefix    16 bytes: u32 check, u32 kind, u32 header words, u32 buffers   (little-endian, like all numbers
//   here) sizes     8 bytes per buffer: size in the low 48 bits, device kind and index in the two bytes above
//   header    8 bytes per word
//   payload   the bytes of the buffers, one after the other
//
// A heartbeat is a prefix alone. A goodbye has its text (count in place of the buffers) and nothing else.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "net/message.h"
#include "net/transport.h"

namespace troupe::net {

enum class FrameKind : uint32_t { message = 0, heartbeat = 1, goodbye = 2 };

struct FramePrefix {
  FrameKind kind = FrameKind::message;
  uint32_t header_words = 0;
  uint32_t count = 0;  ///< buffers of a message, bytes of a goodbye's text
  bool operator==(const FramePrefix&) const = default;
};

inline constexpr size_t kPrefixBytes = 16;
inline constexpr size_t kGoodbyeBytes = 1024;  ///< longer texts are cut

std::array<std::byte, kPrefixBytes> encode_prefix(const FramePrefix& prefix);
/// Throws `invalid` for bytes that are no prefix, or that announce more than `limits` allow.
FramePrefix decode_prefix(std::span<const std::byte, kPrefixBytes> bytes, const Limits& limits);

/// Size and device of a buffer in one word.
uint64_t encode_size(size_t size, Device device);
/// Turns the words of a message into sizes. Throws `invalid` if one, or their sum, is over `limits`, and
/// `unimplemented` for a device other than the CPU.
std::vector<size_t> decode_sizes(std::span<const uint64_t> words, const Limits& limits);

/// Prefix and sizes of a message: all that goes before its header. Throws `invalid` for one over `limits`,
/// and `unimplemented` for buffers that are not on the CPU.
std::vector<std::byte> message_head(const Message& message, const Limits& limits);
std::vector<std::byte> heartbeat_frame();
std::vector<std::byte> goodbye_frame(std::string_view reason);

}  // namespace troupe::net
