#include "core/base/shown.h"

#include <algorithm>

#include "core/base/error.h"

namespace troupe {

std::string shown(std::string_view text, size_t most) {
  std::string out(text.substr(0, most));
  std::replace_if(
      out.begin(), out.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return out;
}

void refuse_nul(std::string_view tag, std::string_view path) {
  if (const size_t at = path.find('\0'); at != std::string_view::npos)
    throw_invalid(std::string(tag) + " '" + shown(path) + "': byte " + std::to_string(at) +
                  " is NUL; expected the name of a file");
}

}  // namespace troupe
