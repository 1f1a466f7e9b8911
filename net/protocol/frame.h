// The bytes around a message on a stream: a prefix that says how much follows, checked before memory is
// taken.
//
//   prefix    16 bytes: u32 check, u32 number, u32 kind (4 bits) and header words (28), u32 buffers
//             (little-endian, like all numbers here)
//   sizes     8 bytes per buffer: size in the low 48 bits, kind and index of the device that needs it in the
//             two bytes above; the highest bit of the kind is set if the buffer is exported
//             (net/socket/shared/exported_blocks.h)
//   header    8 bytes per word
//   payload   the bytes of the buffers, one after the other; of an exported one 8 bytes, its place
//
// Messages and the goodbye are numbered along a connection, whose frames may come by two ways: a socket, and
// a ring of shared memory (net/socket/shared/ring.h). A goodbye has its text (count in place of the buffers)
// and nothing else. The others are prefixes alone, and not numbered: a heartbeat; the offer of a ring or an
// arena, whose descriptors come with it; the answers, whose count is 1 if it may be used from now on. On a
// link that outlives its connections (net/protocol/link.h) a heartbeat's number is that of the next frame
// that its sender expects, and its count the TCP port where its sender listens on this address, or 0. There,
// too, is `lanes`, the last frame by this socket: so many others carry what follows, in turns.
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

namespace troupe::internal::net {

enum class FrameKind : uint32_t {
  message = 0,
  heartbeat = 1,
  goodbye = 2,
  ring_offer = 3,
  ring_answer = 4,
  arena_offer = 5,
  arena_answer = 6,
  lanes = 7
};

struct FramePrefix {
  FrameKind kind = FrameKind::message;
  uint32_t header_words = 0;
  uint32_t count = 0;   ///< buffers of a message, bytes of a goodbye's text, port of a heartbeat, lanes
  uint32_t number = 0;  ///< of a message or goodbye, along its connection; begins again after the last
  bool operator==(const FramePrefix&) const = default;
};

inline constexpr size_t kPrefixBytes = 16;
inline constexpr uint32_t kMostLanes = 16;
inline constexpr size_t kGoodbyeBytes = 1024;  ///< longer texts are cut

std::array<std::byte, kPrefixBytes> encode_prefix(const FramePrefix& prefix);
/// Throws `invalid` for bytes that are no prefix, or that announce more than `limits` allow.
FramePrefix decode_prefix(std::span<const std::byte, kPrefixBytes> bytes, const Limits& limits);

/// Size of a buffer and the device that needs it in one word, and whether it is exported.
uint64_t encode_size(size_t size, Device device, bool exported = false);
struct BufferSize {
  size_t bytes = 0;
  bool exported = false;
  Device device = cpu;  ///< that needs it; maybe not here
  size_t travelling() const { return exported ? sizeof(uint64_t) : bytes; }
  bool operator==(const BufferSize&) const = default;
};
/// Turns the words of a message into sizes. Throws `invalid` if one, or their sum, is over `limits`.
std::vector<BufferSize> decode_sizes(std::span<const uint64_t> words, const Limits& limits);

/// Prefix and sizes of a message: all that goes before its header. Throws `invalid` for one over `limits`,
/// and `unimplemented` for buffers that are not on the CPU.
std::vector<std::byte> message_head(const Message& message, const Limits& limits, uint32_t number = 0);
/// The same, into the front of `out`, which has room for it.
inline size_t head_bytes(const Message& message) { return kPrefixBytes + 8 * message.buffers.size(); }
void write_head(std::byte* out, const Message& message, const Limits& limits, uint32_t number);
std::vector<std::byte> heartbeat_frame(uint32_t received = 0, uint16_t port = 0);
std::vector<std::byte> goodbye_frame(std::string_view reason, uint32_t number = 0);
std::vector<std::byte> lanes_frame(size_t lanes);
/// `kind`: ring_answer or arena_answer.
std::vector<std::byte> answer_frame(FrameKind kind, bool accepted);

}  // namespace troupe::internal::net
