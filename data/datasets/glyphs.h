// The pen strokes of the digits, several ways of writing each.
#pragma once
#include <vector>

namespace troupe::datasets {

/// In a box where y runs down from 0 to 1 and the middle is (0.5, 0.5).
struct Point {
  float x, y;
};

/// A run of the pen: a smooth curve through the points, or straight lines between them.
struct Stroke {
  bool smooth;
  std::vector<Point> points;
};
using Glyph = std::vector<Stroke>;

/// The ways of writing `digit` (0 .. 9); never empty.
const std::vector<Glyph>& glyphs(int digit);

}  // namespace troupe::datasets
