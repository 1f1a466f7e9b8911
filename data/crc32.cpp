#include "data/crc32.h"

#include <zlib.h>

namespace troupe::datasets {

void Crc32::add(const void* data, size_t count) {
  value = static_cast<uint32_t>(::crc32_z(value, static_cast<const Bytef*>(data), count));
  bytes += count;
}

void Crc32::add(const Crc32& next) {
  value = static_cast<uint32_t>(::crc32_combine(value, next.value, static_cast<z_off_t>(next.bytes)));
  bytes += next.bytes;
}

}  // namespace troupe::datasets
