// A live progress bar for training loops, on standard error.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/clock.h"

namespace troupe::tools {

/// What one picture of the bar says.
struct ProgressState {
  std::string label;                                    ///< "epoch 2/5"; may be empty
  int64_t step = 0, total = 0;                          ///< total 0: unknown
  std::vector<std::pair<std::string, double>> metrics;  ///< in the order to show
  double seconds = 0;                                   ///< since the start
  int64_t samples = 0;                                  ///< since the start
  bool finished = false;
};

/// One line, at most `width` columns (labels are taken as one column per character of UTF-8); with `color`,
/// ANSI colours besides. Drops what does not fit: first the bar shrinks, then the rate and the time go, then
/// metrics from the right. Pure.
std::string render_bar(const ProgressState& state, int width, bool color);
/// The same facts as one plain line, for logs: no bar, no colour, any length. Pure.
std::string render_line(const ProgressState& state);
/// "7s", "1:05", "2:03:04"; "?" if it cannot be known.
std::string render_time(double seconds);

struct ProgressOptions {
  int64_t total = 0;  ///< steps; 0 if not known
  std::string label = {};
  int fd = 2;                                       ///< where to draw; never standard output (1 is `invalid`)
  Duration redraw = std::chrono::milliseconds(50);  ///< least time between pictures on a terminal
  Duration line = std::chrono::seconds(5);          ///< least time between lines elsewhere
  const Clock* clock = &Clock::system();            ///< must outlive the bar
};

/// On a terminal, redraws one line; elsewhere (a file, a pipe) writes a plain line now and then and one at
/// the end. Colours only on a terminal, without NO_COLOR, unless TERM is "dumb" (then plain lines). One
/// thread. Write errors are ignored: a lost progress line must not stop a training run.
class Progress {
 public:
  using Metrics = std::vector<std::pair<std::string, double>>;

  /// `invalid`: total below 0, fd 1.
  explicit Progress(ProgressOptions options);
  /// Leaves the cursor on a fresh line if finish() was not called, as when an exception passes.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// What stands in front of the bar from now on.
  void set_label(std::string label) { state_.label = std::move(label); }
  /// Steps done so far, values to show, and samples done in this step. Cheap when nothing is due to be drawn.
  void update(int64_t step, const Metrics& metrics = {}, int64_t samples = 0);
  /// Prints a line on standard output, above the bar. (printf would tear the bar.)
  void print(std::string_view line);
  /// Draws the final state and ends the line. Later calls do nothing.
  void finish();

  const ProgressState& state() const& { return state_; }
  ProgressState state() && { return state_; }

 private:
  double elapsed() const;
  void draw();
  void write(std::string_view text) const;

  ProgressOptions options_;
  ProgressState state_;
  TimePoint start_, drawn_;
  bool terminal_ = false, color_ = false, line_open_ = false, finished_ = false;
};

}  // namespace troupe::tools
