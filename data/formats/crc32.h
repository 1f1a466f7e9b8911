// CRC-32: what tells that bytes are as they were written.
#pragma once
#include <cstddef>
#include <cstdint>

namespace troupe::datasets {

/// The CRC-32 that gzip, PNG and zip have, of bytes that come in parts. It finds accidents, not forgeries.
struct Crc32 {
  uint32_t value = 0;
  uint64_t bytes = 0;

  void add(const void* data, size_t count);
  /// Bytes that follow, of which only this is known.
  void add(const Crc32& next);
};

inline uint32_t crc32_of(const void* data, size_t count) {
  Crc32 crc;
  crc.add(data, count);
  return crc.value;
}

}  // namespace troupe::datasets
