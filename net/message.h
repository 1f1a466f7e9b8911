// What a connection carries: a small header and a list of buffers.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/memory/pinned_buffer.h"

namespace troupe::internal::net {

class Departure;

/// A run of bytes inside a storage. The storage is shared, never copied by the transport on its way to a
/// socket.
struct Buffer {
  Ref<Storage> storage;
  size_t offset = 0, size = 0;
  /// Not 0: its bytes are at this place of memory that the receiver shares, and do not travel.
  uint64_t exported = 0;
  /// Not null: the storage's memory, where its bytes are still arriving from a device (sent), or on their way
  /// to one (received).
  PinnedBuffer* pinned = nullptr;
  /// Where the receiver needs the bytes.
  Device device = cpu;
  std::byte* data() const { return storage->data() + offset; }
  /// What goes in its place among the payload.
  std::span<const std::byte> travelling() const {
    if (exported) return {reinterpret_cast<const std::byte*>(&exported), sizeof exported};
    return {size ? data() : nullptr, size};
  }
};

/// `header` holds 8-byte words (a Cap'n Proto message, see wire.h; the transport does not look inside).
/// The bytes of `buffers` travel beside it, straight from and into storages.
struct Message {
  std::vector<uint64_t> header;
  std::vector<Buffer> buffers;
  /// What goes another way once the message has left (tensor_ways.h); mostly null.
  std::shared_ptr<Departure> beside = {};
  /// Those that travel.
  size_t buffer_bytes() const {
    size_t n = 0;
    for (const auto& b : buffers) n += b.travelling().size();
    return n;
  }
};

}  // namespace troupe::internal::net
