// Line charts as SVG files that need nothing else: for losses and accuracies.
#pragma once
#include <string>
#include <vector>

namespace troupe::tools {

/// A line. Points in order of drawing; one that is not finite (or beyond 1e300) is skipped and leaves a gap.
struct Series {
  std::string name;
  std::vector<double> x = {}, y = {};  ///< of one length
  bool right = false;                  ///< belongs to the right axis
  /// Half-life, in points, of an exponential mean to both sides, drawn as the line, with the raw points faint
  /// behind it; 0: none. At most a sixteenth of the points. The line begins at the first point: a mean
  /// reaches no further ahead than back.
  double smooth = 0;

  void add(double at, double value) { x.push_back(at), y.push_back(value); }
  /// Mean of the last `count` values, or of all where there are fewer: a result that does not hang on the
  /// last batch. `invalid` without values.
  double mean_of_last(size_t count) const;
};

struct Chart {
  std::string title;
  std::string x_label, left_label, right_label;  ///< may be empty
  std::vector<Series> series;
  int width = 820, height = 460;  ///< in pixels, at least 240 x 160
};

/// The chart as SVG text. Follows the reader's light or dark colour scheme. Series without a drawable point
/// are named in the legend only; with none at all, the chart says "no data". `invalid`: x and y of different
/// length, a size below the least or above 20,000. Pure.
std::string render_chart(const Chart& chart);

/// Writes render_chart to `path` through a temporary file beside it and a rename, so that a reader sees the
/// old chart or the new one. `invalid`, naming the path, if that cannot be done.
void write_chart(const std::string& path, const Chart& chart);

/// Round numbers (1, 2 or 5 times a power of ten apart), about `wanted` of them, covering [low, high]: the
/// first is at or below low, the last at or above high. Equal bounds give a range around them, bounds that
/// are not finite (or beyond 1e301) give 0 to 1.
std::vector<double> nice_ticks(double low, double high, int wanted);

}  // namespace troupe::tools
