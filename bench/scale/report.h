// How fast measured costs grow, as numbers, as a table and as pictures.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace troupe::bench {

/// A line that a part of bench_scale printed.
struct Line {
  std::string bench;
  std::map<std::string, double> values;  ///< "value", and what stands beside it
};

struct Point {
  double x, cost;
};

/// A cost that depends on a number.
struct Curve {
  std::string what;  ///< "a call of one of so many callers"
  std::string bench, x, field;
  std::string unit;
  bool rate = false;  ///< the field says how many a second; the cost is then the time in which each had one
  std::vector<Point> points = {};  ///< x rises
};

struct Growth {
  double fixed = 0, each = 0;  ///< cost = fixed + each * x, fitted to relative errors
  double ratio = 0;            ///< cost of one at the greatest x over that at an eighth of it: 1 is linear
  double steepest = 0;         ///< the greatest exponent between two neighbours: 1 is linear
  double steepest_at = 0;      ///< the greater x of these two
};

/// At least two points, x above 0; costs below 1e-9 count as 1e-9. Pure.
Growth growth_of(const std::vector<Point>& points);

/// What the lines say, in a fixed order; curves of which fewer than two points were measured are left out.
std::vector<Curve> curves_of(const std::vector<Line>& lines);

/// Markdown: a table of the curves, and one of what has a limit.
std::string table_of(const std::vector<Curve>& curves, const std::vector<Line>& lines);

/// Writes scale-*.svg into a folder, which is made if need be; those pictures for which something was
/// measured. Their paths. `invalid` if that cannot be done.
std::vector<std::string> draw(const std::string& folder, const std::vector<Curve>& curves);

}  // namespace troupe::bench
