// Curves of a run: for TensorBoard, and as lines of JSON.
#pragma once
#include <memory>
#include <string>

#include "core/tensor/tensor.h"

namespace troupe::datasets {

/// Writes to a folder, which is made: an event file of TensorBoard's (`tensorboard --logdir folder`), and
/// steps.jsonl, a line for each step with all its scalars: {"step": 3, "time": 1764, "loss": 0.25}.
///
///   datasets::Summary summary("runs/first");
///   summary.scalar("loss", loss.item(), step);
///
/// What is written is there when the call returns, but for the line of the last step, which comes with the
/// next step or the end. A disk that refuses later is a warning in the log, once: training goes on. One
/// thread.
class Summary {
 public:
  /// `invalid` for a folder that cannot be written.
  explicit Summary(const std::string& folder);
  ~Summary();
  Summary(Summary&&) noexcept;
  Summary& operator=(Summary&&) noexcept;

  void scalar(const std::string& tag, double value, int64_t step);
  /// How the elements are distributed, in 30 intervals; those that are not finite are left out.
  void histogram(const std::string& tag, const Tensor& values, int64_t step);
  /// Markdown.
  void text(const std::string& tag, const std::string& text, int64_t step);
  /// Its shape is {height, width} (grey), or {3, height, width}: numbers from 0 to 1, or uint8 from 0 to 255.
  void picture(const std::string& tag, const Tensor& picture, int64_t step);

 private:
  struct Files;
  std::unique_ptr<Files> files_;
};

}  // namespace troupe::datasets
