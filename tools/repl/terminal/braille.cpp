#include "tools/repl/terminal/braille.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace troupe::repl {

std::string braille(const tools::Chart& chart, int width, int height) {
  width = std::max(width, 10);
  height = std::max(height, 2);
  double left = INFINITY, right = -INFINITY, low = INFINITY, high = -INFINITY;
  for (const auto& s : chart.series)
    for (size_t i = 0; i < s.y.size(); ++i) {
      if (!std::isfinite(s.x[i]) || !std::isfinite(s.y[i])) continue;
      left = std::min(left, s.x[i]);
      right = std::max(right, s.x[i]);
      low = std::min(low, s.y[i]);
      high = std::max(high, s.y[i]);
    }
  if (!(left <= right)) return "no data\n";
  const int columns = 2 * width, rows = 4 * height;
  // Dots by position in their character: Unicode numbers the left column 1 2 3 7, the right one 4 5 6 8.
  static constexpr int kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
  std::vector<int> cells(static_cast<size_t>(width * height), 0);
  const auto dot = [&](int column, int row) {
    cells[static_cast<size_t>(row / 4 * width + column / 2)] |= kBits[row % 4][column % 2];
  };
  const auto column_of = [&](double x) {
    return right > left ? static_cast<int>(std::lround((x - left) / (right - left) * (columns - 1)))
                        : columns / 2;
  };
  const auto row_of = [&](double y) {
    return high > low ? static_cast<int>(std::lround((high - y) / (high - low) * (rows - 1))) : rows / 2;
  };
  for (const auto& s : chart.series) {
    int column = -1, row = 0;  // of the point before; -1: none
    for (size_t i = 0; i < s.y.size(); ++i) {
      if (!std::isfinite(s.x[i]) || !std::isfinite(s.y[i])) {
        column = -1;
        continue;
      }
      const int c = column_of(s.x[i]), r = row_of(s.y[i]);
      const int steps = column < 0 ? 0 : std::max(std::abs(c - column), std::abs(r - row));
      for (int k = 1; k < steps; ++k) dot(column + (c - column) * k / steps, row + (r - row) * k / steps);
      dot(c, r);
      column = c;
      row = r;
    }
  }
  const std::string top = fmt::format("{:.4g}", high), bottom = fmt::format("{:.4g}", low);
  const size_t margin = std::max(top.size(), bottom.size());
  std::string out = chart.title.empty() ? "" : chart.title + "\n";
  for (int y = 0; y < height; ++y) {
    out += fmt::format("{:>{}} ", y == 0 ? top : y + 1 == height ? bottom : "", margin);
    for (int x = 0; x < width; ++x) {
      const int code = 0x2800 + cells[static_cast<size_t>(y * width + x)];
      out += static_cast<char>(0xe0 | code >> 12);
      out += static_cast<char>(0x80 | (code >> 6 & 0x3f));
      out += static_cast<char>(0x80 | (code & 0x3f));
    }
    out += "\n";
  }
  std::string names;
  for (const auto& s : chart.series) names += (names.empty() ? "" : ", ") + s.name;
  return out + fmt::format("{:>{}} {:<{}}{}\n{:>{}} {}\n", "", margin, fmt::format("{:.4g}", left), width - 8,
                           fmt::format("{:>8.4g}", right), "", margin, names);
}

}  // namespace troupe::repl
