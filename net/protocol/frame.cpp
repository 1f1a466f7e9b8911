#include "net/protocol/frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace troupe::internal::net {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the wire is little-endian and so must be this machine");

constexpr int kSizeBits = 48;
constexpr uint16_t kExported = 0x80;  // in the byte of the device's kind
constexpr uint64_t kSizeMask = (uint64_t{1} << kSizeBits) - 1;
constexpr int kWordsBits = 28;
constexpr uint32_t kWordsMask = (uint32_t{1} << kWordsBits) - 1;

// Not against attackers (peers are authenticated) but against a stream read at the wrong place.
uint32_t check_word(uint32_t number, uint32_t kind, uint32_t count) {
  uint32_t h = 0x54525046;  // "FPRT"
  for (uint32_t x : {number, kind, count}) h = (std::rotl(h, 7) ^ x) * 0x9e3779b1;
  return h;
}

void check_prefix(const FramePrefix& p, const Limits& limits) {
  if (p.kind != FrameKind::message) return;
  if (p.header_words > std::min<size_t>(limits.header_bytes / 8, kWordsMask))
    throw_invalid(fmt::format("[net] a message header of {} bytes; the limit is {}",
                              uint64_t{p.header_words} * 8, limits.header_bytes));
  if (p.count > limits.buffers)
    throw_invalid(fmt::format("[net] a message of {} buffers; the limit is {}", p.count, limits.buffers));
}

// Adds a buffer to `total`; `total` stays at or below the limit, so that nothing overflows.
void add_buffer(size_t size, size_t index, size_t& total, const Limits& limits) {
  if (size > limits.buffer_bytes)
    throw_invalid(fmt::format("[net] buffer {} of a message has {} bytes; the limit is {}", index, size,
                              limits.buffer_bytes));
  if (size > limits.message_bytes - total)
    throw_invalid(fmt::format("[net] the buffers of a message have over {} bytes, which is the limit",
                              limits.message_bytes));
  total += size;
}

void check_device(Device device, size_t index) {
  if (!device.is_cpu())
    throw_error(ErrorKind::unimplemented,
                fmt::format("[net] buffer {} of a message is on {}; sockets carry buffers of the cpu", index,
                            device.str()));
}

std::vector<std::byte> to_vector(const std::array<std::byte, kPrefixBytes>& a) {
  return {a.begin(), a.end()};
}

}  // namespace

std::array<std::byte, kPrefixBytes> encode_prefix(const FramePrefix& p) {
  const uint32_t kind = static_cast<uint32_t>(p.kind) << kWordsBits | (p.header_words & kWordsMask);
  return std::bit_cast<std::array<std::byte, kPrefixBytes>>(
      std::array<uint32_t, 4>{check_word(p.number, kind, p.count), p.number, kind, p.count});
}

FramePrefix decode_prefix(std::span<const std::byte, kPrefixBytes> bytes, const Limits& limits) {
  std::array<uint32_t, 4> w;
  std::memcpy(w.data(), bytes.data(), kPrefixBytes);
  if (w[0] != check_word(w[1], w[2], w[3]))
    throw_invalid(
        fmt::format("[net] bytes that are no frame: {:08x} {:08x} {:08x} {:08x}", w[0], w[1], w[2], w[3]));
  const FramePrefix p{static_cast<FrameKind>(w[2] >> kWordsBits), w[2] & kWordsMask, w[3], w[1]};
  switch (p.kind) {
    case FrameKind::message:
      check_prefix(p, limits);
      return p;
    case FrameKind::heartbeat:
      if (p.header_words || p.count > UINT16_MAX) throw_invalid("[net] a heartbeat with something in it");
      return p;
    case FrameKind::goodbye:
      if (p.header_words || p.count > kGoodbyeBytes)
        throw_invalid(fmt::format("[net] a goodbye of {} bytes; the limit is {}", p.count, kGoodbyeBytes));
      return p;
    case FrameKind::ring_offer:
    case FrameKind::arena_offer:
      if (p.header_words || p.count) throw_invalid("[net] an offer of shared memory with something in it");
      return p;
    case FrameKind::ring_answer:
    case FrameKind::arena_answer:
      if (p.header_words || p.count > 1)
        throw_invalid("[net] the answer to an offer of shared memory with something in it");
      return p;
    case FrameKind::lanes:
      if (p.header_words || p.count == 0 || p.count > kMostLanes)
        throw_invalid(fmt::format("[net] a stream of {} lanes; the limit is {}", p.count, kMostLanes));
      return p;
  }
  throw_invalid(fmt::format("[net] a frame of unknown kind {}", w[2] >> kWordsBits));
}

uint64_t encode_size(size_t size, Device device, bool exported) {
  const uint64_t tag = static_cast<uint64_t>(device.kind) | (exported ? kExported : 0) |
                       uint64_t{static_cast<uint8_t>(device.index)} << 8;
  return (size & kSizeMask) | tag << kSizeBits;
}

std::vector<BufferSize> decode_sizes(std::span<const uint64_t> words, const Limits& limits) {
  std::vector<BufferSize> sizes;
  sizes.reserve(words.size());
  size_t total = 0;
  for (uint64_t word : words) {
    auto tag = static_cast<uint16_t>(word >> kSizeBits);
    const bool exported = tag & kExported;
    tag &= static_cast<uint16_t>(~kExported);
    if ((tag & 0xff) >= kDeviceKinds || (tag != 0 && (tag & 0xff) == 0))
      throw_invalid(
          fmt::format("[net] buffer {} of a message has the unknown device tag {:04x}", sizes.size(), tag));
    const size_t size = word & kSizeMask;
    add_buffer(size, sizes.size(), total, limits);
    sizes.push_back(
        {size, exported, Device(static_cast<Device::Kind>(tag & 0xff), static_cast<int8_t>(tag >> 8))});
  }
  return sizes;
}

std::vector<std::byte> message_head(const Message& m, const Limits& limits, uint32_t number) {
  std::vector<std::byte> head(head_bytes(m));
  write_head(head.data(), m, limits, number);
  return head;
}

void write_head(std::byte* out, const Message& m, const Limits& limits, uint32_t number) {
  if (m.header.size() > std::min<size_t>(limits.header_bytes / 8, kWordsMask) ||
      m.buffers.size() > limits.buffers)
    check_prefix({FrameKind::message, static_cast<uint32_t>(std::min<size_t>(m.header.size(), UINT32_MAX)),
                  static_cast<uint32_t>(std::min<size_t>(m.buffers.size(), UINT32_MAX))},
                 limits);
  const auto prefix = encode_prefix({FrameKind::message, static_cast<uint32_t>(m.header.size()),
                                     static_cast<uint32_t>(m.buffers.size()), number});
  std::memcpy(out, prefix.data(), kPrefixBytes);
  size_t total = 0, i = 0;
  for (const Buffer& b : m.buffers) {
    if (b.storage) check_device(b.storage->device(), i);
    add_buffer(b.size, i, total, limits);
    const uint64_t word = encode_size(b.size, b.device, b.exported != 0);
    std::memcpy(out + kPrefixBytes + 8 * i++, &word, 8);
  }
}

std::vector<std::byte> heartbeat_frame(uint32_t received, uint16_t port) {
  return to_vector(encode_prefix({FrameKind::heartbeat, 0, port, received}));
}

std::vector<std::byte> answer_frame(FrameKind kind, bool accepted) {
  return to_vector(encode_prefix({kind, 0, accepted ? 1u : 0u}));
}

std::vector<std::byte> lanes_frame(size_t lanes) {
  return to_vector(encode_prefix({FrameKind::lanes, 0, static_cast<uint32_t>(lanes)}));
}

std::vector<std::byte> goodbye_frame(std::string_view reason, uint32_t number) {
  reason = reason.substr(0, kGoodbyeBytes);
  const auto prefix = encode_prefix({FrameKind::goodbye, 0, static_cast<uint32_t>(reason.size()), number});
  std::vector<std::byte> frame(kPrefixBytes + reason.size());
  std::memcpy(frame.data(), prefix.data(), kPrefixBytes);
  std::memcpy(frame.data() + kPrefixBytes, reason.data(), reason.size());
  return frame;
}

}  // namespace troupe::internal::net
