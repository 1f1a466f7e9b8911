#include "core/base/text_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace troupe::internal {

std::string text_table(const std::vector<std::vector<std::string>>& rows, bool numbers) {
  std::vector<size_t> widths(rows.empty() ? 0 : rows[0].size());
  for (const auto& r : rows)
    for (size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], r[i].size());
  std::string text;
  for (const auto& r : rows) {
    std::string line;
    for (size_t i = 0; i < widths.size(); ++i) {
      if (i) line += "  ";
      line += numbers && i ? fmt::format("{:>{}}", r[i], widths[i]) : fmt::format("{:{}}", r[i], widths[i]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace troupe::internal
