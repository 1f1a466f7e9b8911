// What a connection carries: a small header and a list of buffers.
#pragma once
#include <cstdint>
#include <vector>

#include "core/storage.h"

namespace troupe::net {

/// A run of bytes inside a storage. The storage is shared, never copied by the transport on its way to a
/// socket.
struct Buffer {
  Ref<Storage> storage;
  size_t offset = 0, size = 0;
  std::byte* data() const { return storage->data() + offset; }
};

/// `header` holds 8-byte words (a Cap'n Proto message, see wire.h; the transport does not look inside).
/// The bytes of `buffers` travel beside it, straight from and into storages.
struct Message {
  std::vector<uint64_t> header;
  std::vector<Buffer> buffers;
  size_t buffer_bytes() const {
    size_t n = 0;
    for (const auto& b : buffers) n += b.size;
    return n;
  }
};

}  // namespace troupe::net
