#include "core/base/readable_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/ascii.h"
#include "core/base/error.h"

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

int64_t bytes_named(const std::string& text) {
  const auto fail = [&] {
    throw_invalid("\"" + text + "\" is no number of bytes: write one such as 512M, 1.5G or 2GiB");
  };
  const auto is_of_number = [](char c) { return is_digit(c) || c == '.'; };
  const auto end = std::ranges::find_if_not(text, is_of_number);
  const auto number = number_in(std::string(text.begin(), end));
  std::string unit(end, text.end());
  std::erase_if(unit, [](char c) { return c == ' ' || c == 'i' || c == 'B' || c == 'b'; });
  if (!number || unit.size() > 1) fail();
  double size = *number;
  if (!unit.empty()) {
    const std::string units = "KMGTkmgt";
    const size_t at = units.find(unit);
    if (at == std::string::npos) fail();
    size *= std::ldexp(1.0, 10 * (1 + static_cast<int>(at % 4)));
  }
  if (size > 1e18) fail();
  return static_cast<int64_t>(size);
}

}  // namespace troupe
