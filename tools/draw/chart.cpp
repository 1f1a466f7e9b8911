// Lays out and writes a line chart: ranges, ticks, lines, legend.
#include "tools/draw/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include "core/base/error.h"
#include "tools/draw/svg.h"

namespace troupe::tools {
namespace {

constexpr size_t kDotted = 24;     // lines of at most so many points show them
constexpr double kKey = 22;        // the line in front of a legend entry
constexpr double kHalfLives = 16;  // of smoothing, at least, in a line: a short run keeps its shape
constexpr double kReach = 12;      // half-lives, behind which weights do not count

int characters(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// Finite, and so far from the largest double that differences are finite too.
bool drawable(const Series& s, size_t i) { return std::abs(s.x[i]) <= 1e300 && std::abs(s.y[i]) <= 1e300; }

// One direction of the chart: its ticks and the place of a value.
struct Axis {
  bool used = false;
  double low = 0, high = 0;
  std::vector<double> ticks;
  double from = 0, to = 0;  // pixels

  void include(double v) {
    low = used ? std::min(low, v) : v;
    high = used ? std::max(high, v) : v;
    used = true;
  }
  double place(double v) const { return from + (v - low) / (high - low) * (to - from); }
};

std::vector<std::string> tick_labels(const Axis& axis) {
  std::vector<std::string> out;
  for (double t : axis.ticks) out.push_back(tick_label(t, axis.ticks[1] - axis.ticks[0]));
  return out;
}
double widest(const std::vector<std::string>& labels) {
  size_t n = 0;
  for (const auto& l : labels) n = std::max(n, l.size());
  return static_cast<double>(n) * kCharWidth;
}

// Weights fall off to both sides, so that the mean does not lag, and reach no further ahead than back, so
// that it begins on the data. They are divided out, so that the end is right.
std::vector<double> smoothed(const Series& s) {
  std::vector<size_t> drawn;
  for (size_t i = 0; i < s.y.size(); ++i)
    if (drawable(s, i)) drawn.push_back(i);
  const double half_life = std::min(s.smooth, static_cast<double>(drawn.size()) / kHalfLives);
  const auto reach = static_cast<size_t>(kReach * half_life);
  std::vector<double> mean = s.y;
  for (size_t i = 0; i < drawn.size(); ++i) {
    double sum = 0, weights = 0;
    const size_t back = std::min(i, reach), ahead = std::min(back, drawn.size() - 1 - i);
    for (size_t j = i - back; j <= i + ahead; ++j) {
      const double weight = std::exp2(-std::abs(static_cast<double>(j) - static_cast<double>(i)) / half_life);
      sum += weight * s.y[drawn[j]], weights += weight;
    }
    mean[drawn[i]] = sum / weights;
  }
  return mean;
}

class Drawing {
 public:
  explicit Drawing(const Chart& chart) : chart_(chart) { lay_out(); }

  std::string text() {
    head();
    grid();
    for (size_t i = 0; i < chart_.series.size(); ++i) line(chart_.series[i], kColors[i % kColors.size()]);
    if (!left_.used && !right_.used)
      svg_.label((x_.from + x_.to) / 2, (left_.from + left_.to) / 2, "middle", "quiet", "no data");
    return svg_.text + "</svg>\n";
  }

 private:
  void lay_out() {
    for (const Series& s : chart_.series)
      for (size_t i = 0; i < s.x.size(); ++i)
        if (drawable(s, i)) x_.include(s.x[i]), (s.right ? right_ : left_).include(s.y[i]);
    double top = chart_.title.empty() ? 14 : 44;
    legend_y_ = top + 4;
    const double legend_rows = place_legend();
    top += legend_rows * 20 + (legend_rows > 0 ? 10 : 4);
    for (Axis* axis : {&left_, &right_}) {
      axis->from = chart_.height - (chart_.x_label.empty() ? 34 : 54);
      axis->to = std::min(top, axis->from - 20);
      fit(*axis, std::clamp(static_cast<int>((axis->from - axis->to) / 52), 2, 8));
    }
    x_.from = 16 + widest(tick_labels(left_)) + (chart_.left_label.empty() ? 0 : 22);
    x_.to = chart_.width -
            (right_.used ? 16 + widest(tick_labels(right_)) + (chart_.right_label.empty() ? 0 : 22) : 24);
    x_.to = std::max(x_.to, x_.from + 20);
    fit_x(std::clamp(static_cast<int>((x_.to - x_.from) / 90), 2, 10));
  }

  // y axes begin and end at a tick.
  static void fit(Axis& axis, int wanted) {
    axis.ticks = nice_ticks(axis.used ? axis.low : 0, axis.used ? axis.high : 1, wanted);
    axis.low = axis.ticks.front(), axis.high = axis.ticks.back();
  }
  // The x axis begins and ends with the data; its ticks are those within.
  void fit_x(int wanted) {
    x_.ticks = nice_ticks(x_.used ? x_.low : 0, x_.used ? x_.high : 1, wanted);
    if (!x_.used || x_.low == x_.high) {
      x_.low = x_.ticks.front(), x_.high = x_.ticks.back();
      return;
    }
    const double step = x_.ticks[1] - x_.ticks[0];
    if (x_.low - x_.ticks.front() < 0.15 * step) x_.low = x_.ticks.front();  // 1 .. 100 begins at 0
  }

  // Rows that the legend takes; entries wrap.
  double place_legend() {
    double x = 16, row = 0;
    for (const Series& s : chart_.series) {
      const double width = kKey + 8 + characters(s.name) * kCharWidth + 18;
      if (x > 16 && x + width > chart_.width) x = 16, ++row;
      legend_.push_back({x, legend_y_ + 20 * row});
      x += width;
    }
    return chart_.series.empty() ? 0 : row + 1;
  }

  void head() {
    svg_.head(chart_.width, chart_.height, chart_.title.empty() ? "chart" : chart_.title);
    if (!chart_.title.empty()) svg_.label(16, 29, "start", "title", chart_.title);
    for (size_t i = 0; i < chart_.series.size(); ++i) {
      const auto [x, y] = legend_[i];
      svg_.text += fmt::format(
          "<line class=\"line\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"{}/>\n",
          x, y + 6, x + kKey, y + 6, kColors[i % kColors.size()], dashes(chart_.series[i]));
      svg_.label(x + kKey + 8, y + 10, "start", "", chart_.series[i].name);
    }
  }

  // Lines of the right axis are dashed where there are two axes, so that each finds its numbers.
  const char* dashes(const Series& s) const {
    return s.right && left_.used ? " stroke-dasharray=\"7 4\"" : "";
  }

  void grid() {
    const auto left = tick_labels(left_), right = tick_labels(right_), below = tick_labels(x_);
    const double bottom = left_.from, top = left_.to;
    const Axis& ruled = left_.used || !right_.used ? left_ : right_;
    for (size_t i = 0; i < ruled.ticks.size(); ++i)
      svg_.rule(i == 0 ? "axis" : "grid", x_.from, ruled.place(ruled.ticks[i]), x_.to,
                ruled.place(ruled.ticks[i]));
    if (left_.used || !right_.used)
      for (size_t i = 0; i < left.size(); ++i)
        svg_.label(x_.from - 8, left_.place(left_.ticks[i]) + 4, "end", "quiet", left[i]);
    if (right_.used)
      for (size_t i = 0; i < right.size(); ++i)
        svg_.label(x_.to + 8, right_.place(right_.ticks[i]) + 4, "start", "quiet", right[i]);
    for (size_t i = 0; i < below.size(); ++i) {
      if (x_.ticks[i] < x_.low || x_.ticks[i] > x_.high) continue;
      const double at = x_.place(x_.ticks[i]);
      svg_.rule("axis", at, bottom, at, bottom + 5);
      svg_.label(at, bottom + 20, "middle", "quiet", below[i]);
    }
    if (!chart_.x_label.empty()) svg_.label((x_.from + x_.to) / 2, bottom + 42, "middle", "", chart_.x_label);
    if (!chart_.left_label.empty()) svg_.turned(20, (top + bottom) / 2, chart_.left_label);
    if (right_.used && !chart_.right_label.empty())
      svg_.turned(chart_.width - 10, (top + bottom) / 2, chart_.right_label);
  }

  void line(const Series& s, const char* color) {
    if (s.smooth <= 0) return polyline(s, s.y, color, "line");
    polyline(s, s.y, color, "line raw");
    polyline(s, smoothed(s), color, "line");
  }

  void polyline(const Series& s, const std::vector<double>& y, const char* color, const char* style) {
    const Axis& axis = s.right ? right_ : left_;
    std::string points, dots;
    int count = 0;
    double px = 0, py = 0;
    auto flush = [&] {
      if (count == 1)
        svg_.text +=
            fmt::format("<circle cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"3\" fill=\"{}\"/>\n", px, py, color);
      else if (count > 1)
        svg_.text += fmt::format("<polyline class=\"{}\" stroke=\"{}\"{} points=\"{}\"/>\n", style, color,
                                 dashes(s), points);
      points.clear();
      count = 0;
    };
    for (size_t i = 0; i < y.size(); ++i) {
      if (!drawable(s, i)) {
        flush();
        continue;
      }
      px = x_.place(s.x[i]), py = axis.place(y[i]);
      points += fmt::format("{}{:.2f},{:.2f}", count++ ? " " : "", px, py);
      if (y.size() <= kDotted)
        dots += fmt::format("<circle class=\"dot\" cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"2.6\" fill=\"{}\"/>\n", px,
                            py, color);
    }
    flush();
    svg_.text += dots;
  }

  struct Spot {
    double x, y;
  };
  const Chart& chart_;
  Axis x_, left_, right_;
  std::vector<Spot> legend_;
  double legend_y_ = 0;
  Svg svg_;
};

}  // namespace

double Series::mean_of_last(size_t count) const {
  if (y.empty() || count == 0) throw_invalid("mean_of_last: '" + name + "' has no values");
  const auto from = y.end() - static_cast<std::ptrdiff_t>(std::min(count, y.size()));
  return std::accumulate(from, y.end(), 0.0) / static_cast<double>(y.end() - from);
}

std::string render_chart(const Chart& chart) {
  for (const Series& s : chart.series)
    if (s.x.size() != s.y.size())
      throw_invalid(
          fmt::format("[chart] series '{}' has {} x and {} y values", s.name, s.x.size(), s.y.size()));
  if (chart.width < 240 || chart.height < 160 || chart.width > 20'000 || chart.height > 20'000)
    throw_invalid(
        fmt::format("[chart] size {} x {}, expected 240 x 160 to 20000 x 20000", chart.width, chart.height));
  return Drawing(chart).text();
}

void write_chart(const std::string& path, const Chart& chart) { write_picture(path, render_chart(chart)); }

}  // namespace troupe::tools
