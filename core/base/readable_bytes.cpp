#include "core/base/readable_bytes.h"

#include <fmt/format.h>

namespace troupe {

std::string readable_bytes(int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double size = static_cast<double>(bytes);
  const char* unit = "";
  for (const char* u : {"KiB", "MiB", "GiB", "TiB"}) {
    if (size < 1024) break;
    size /= 1024, unit = u;
  }
  return fmt::format("{:.1f} {}", size, unit);
}

}  // namespace troupe
