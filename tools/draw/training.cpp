#include "tools/draw/training.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/codec/keep.h"
#include "troupe/job/job.h"

namespace troupe::tools {

Training::Training(std::string picture, std::string title, int64_t steps, const TrainingOptions& options)
    : picture_(std::move(picture)),
      title_(std::move(title)),
      steps_(steps),
      epochs_(options.epochs),
      bar_({.total = steps}),
      losses_{.name = "training loss", .smooth = options.smooth},
      measures_{.name = options.measure, .right = !options.same_axis} {
  const char* const variable = std::getenv("TROUPE_SUMMARY");
  if (const std::string folder = !options.summary.empty() ? options.summary
                                 : variable               ? variable
                                                          : "";
      !folder.empty())
    summary_.emplace(folder);
}

void Training::measure(double value) {
  measures_.add(static_cast<double>(done_), value);
  if (summary_) summary_->scalar(measures_.name.empty() ? "measure" : measures_.name, value, done_);
}

StateDict Training::state() const {
  StateDict out;
  internal::pack(out, "done", Value(done_));
  internal::pack(out, "losses", internal::to_value(losses_));
  internal::pack(out, "measures", internal::to_value(measures_));
  return out;
}

void Training::load_state(const StateDict& state) {
  auto losses = internal::from_value<Series>(internal::unpack(state, "losses")),
       measures = internal::from_value<Series>(internal::unpack(state, "measures"));
  done_ = internal::from_value<int64_t>(internal::unpack(state, "done"));
  losses_.x = std::move(losses.x), losses_.y = std::move(losses.y);
  measures_.x = std::move(measures.x), measures_.y = std::move(measures.y);
}

void Training::step(double loss, int64_t samples, const Progress::Metrics& more) {
  if (epochs_ > 0 && done_ < steps_)
    bar_.set_label("epoch " + std::to_string(done_ * epochs_ / steps_ + 1) + "/" + std::to_string(epochs_));
  Job::check_current(loss);
  losses_.add(static_cast<double>(++done_), loss);
  if (summary_) {
    summary_->scalar("loss", loss, done_);
    for (const auto& [name, value] : more) summary_->scalar(name, value, done_);
  }
  Progress::Metrics metrics{{"loss", loss}};
  metrics.insert(metrics.end(), more.begin(), more.end());
  bar_.update(done_, metrics, samples);
}

void Training::set_json_line(const ValueMap& result) {
  nlohmann::json json;
  for (const auto& [name, value] : result) {
    if (const auto* truth = value.get_if<bool>())
      json[name] = *truth;
    else if (const auto* whole = value.get_if<int64_t>())
      json[name] = *whole;
    else if (const auto* number = value.get_if<double>())
      json[name] = *number;
    else if (const auto* text = value.get_if<std::string>())
      json[name] = *text;
    else
      throw_invalid("[training] \"" + name +
                    "\" of the JSON line is neither a number nor a text nor a truth");
  }
  json_line_ = json.dump();
}

void Training::finish(const char* result, ...) {
  bar_.finish();
  va_list arguments;
  va_start(arguments, result);
  std::vprintf(result, arguments);
  va_end(arguments);
  std::printf("; picture: %s\n", picture_.c_str());
  if (!json_line_.empty()) std::printf("%s\n", json_line_.c_str());
  Chart chart{.title = title_, .x_label = "step", .left_label = "loss", .series = {losses_}};
  if (!measures_.name.empty()) chart.series.push_back(measures_);
  if (measures_.right) chart.right_label = measures_.name;
  write_chart(picture_, chart);
}

}  // namespace troupe::tools
