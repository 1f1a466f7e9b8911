#include "core/base/visible.h"

#include <fmt/format.h>

#include "core/base/ascii.h"

namespace troupe {

std::string visible(std::string_view text, std::string_view kept) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (!is_control(c) || kept.find(c) != kept.npos)
      out += c;
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else
      out += fmt::format("\\x{:02x}", static_cast<int>(c));
  }
  return out;
}

std::string in_quotes(std::string_view text, size_t most) {
  size_t end = std::min(most, text.size());
  while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return "\"" + visible(text.substr(0, end)) + (end < text.size() ? "..." : "") + "\"";
}

}  // namespace troupe
