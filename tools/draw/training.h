// A training run as its user follows it: a bar while it goes on, then its result and a chart.
#pragma once
#include <optional>
#include <string>
#include <utility>

#include "core/graph/stateful.h"
#include "core/value/value.h"
#include "data/formats/summary.h"
#include "tools/draw/chart.h"
#include "tools/flags/progress.h"

namespace troupe::tools {

struct TrainingOptions {
  int64_t epochs = 0;        ///< that the steps make up; the bar says "epoch 2/5"; 0: it does not
  double smooth = 8;         ///< as Series::smooth, of the loss
  std::string measure = {};  ///< "test accuracy", drawn over the right axis; empty: none
  bool same_axis = false;    ///< the measure is drawn over the left axis, as the loss is
  /// A folder for TensorBoard's event files and steps.jsonl (datasets::Summary), with the loss, the measure
  /// and what the bar shows; empty: the variable TROUPE_SUMMARY, or none.
  std::string summary = {};
};

/// One thread. A checkpoint has its curves, and the bar goes on where it was; every loss is a witness
/// (Job::check).
class Training final : public Stateful {
 public:
  /// The file and the title of the chart (SVG), and how many steps there will be. `invalid` as Progress.
  Training(std::string picture, std::string title, int64_t steps, const TrainingOptions& options = {});
  /// A step is done: its loss, how many samples it took, and what the bar shows beside the loss.
  void step(double loss, int64_t samples, const Progress::Metrics& more = {});
  /// The value of the measure after the last step.
  void measure(double value);
  /// Prints a line on standard output, above the bar.
  void print(const std::string& line) { bar_.print(line); }
  /// What finish() prints behind its own line, as one line of JSON. `invalid` for other values than numbers,
  /// texts and truths.
  void set_json_line(const ValueMap& result);
  /// Ends the bar, prints "<result>; picture: <file>", the result as printf does, and writes the chart.
  void finish(const char* result, ...) __attribute__((format(printf, 2, 3)));

  /// Mean of the losses of the last steps, and the last measure. `invalid` before there is one.
  double loss(size_t count = 1) const { return losses_.mean_of_last(count); }
  double measured() const { return measures_.mean_of_last(1); }

  StateDict state() const override;
  void load_state(const StateDict& state) override;

 private:
  std::string picture_, title_, json_line_;
  int64_t steps_, epochs_, done_ = 0;
  Progress bar_;
  Series losses_, measures_;
  std::optional<datasets::Summary> summary_;
};

}  // namespace troupe::tools
