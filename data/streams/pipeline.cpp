#include "data/streams/pipeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace troupe::datasets {

Pipeline::Pipeline(SourcePtr source) : source_(std::move(source)), taken_(source_ ? source_->size() : 0) {
  if (taken_ == 0) throw_invalid("[stream] a pipeline has no source, or one without samples");
}

Pipeline& Pipeline::shuffle(const ShuffleOptions& options) {
  if (options.block < 1 || options.together < 1)
    throw_invalid(fmt::format("[stream] shuffle of {} blocks of {} samples: expected 1 or more",
                              options.together, options.block));
  shuffle_ = options;
  return changed();
}

Pipeline& Pipeline::map(std::function<Sample(Sample)> f) {
  steps_.push_back([f = std::move(f)](Sample s, Generator&) { return std::optional(f(std::move(s))); });
  return changed();
}

Pipeline& Pipeline::map(std::function<Sample(Sample, Generator&)> f) {
  steps_.push_back(
      [f = std::move(f)](Sample s, Generator& random) { return std::optional(f(std::move(s), random)); });
  return changed();
}

Pipeline& Pipeline::filter(std::function<bool(const Sample&)> keeps) {
  filters_ = true;
  steps_.push_back([keeps = std::move(keeps)](Sample s, Generator&) {
    return keeps(s) ? std::optional(std::move(s)) : std::nullopt;
  });
  return changed();
}

Pipeline& Pipeline::step(Step f) {
  filters_ = true;
  steps_.push_back(std::move(f));
  return changed();
}

Pipeline& Pipeline::pack(const std::string& field, int64_t length) {
  if (field.empty() || length < 1)
    throw_invalid(
        fmt::format("[stream] pack(\"{}\", {}): expected a field's name, and 1 or more", field, length));
  if (!bucketed_.empty()) throw_invalid("[stream] pack() and bucket(): rows that are packed have one length");
  packed_ = field, length_ = length;
  return changed();
}

Pipeline& Pipeline::bucket(const std::string& field, std::vector<int64_t> boundaries, int64_t batches) {
  if (field.empty() || batches < 1 || boundaries.empty() || boundaries.front() < 0 ||
      !std::ranges::is_sorted(boundaries))
    throw_invalid(
        fmt::format("[stream] bucket(\"{}\", {{{}}}, {}): expected a field's name, lengths that rise, "
                    "and 1 or more batches",
                    field, fmt::join(boundaries, ", "), batches));
  if (!packed_.empty()) throw_invalid("[stream] pack() and bucket(): rows that are packed have one length");
  bucketed_ = field, boundaries_ = std::move(boundaries), window_ = batches;
  return changed();
}

Pipeline& Pipeline::batch(int64_t rows, BatchOptions options) {
  if (rows < 1 || options.pad_to < 1)
    throw_invalid(fmt::format("[stream] batches of {} rows, padded to multiples of {}: expected 1 or more",
                              rows, options.pad_to));
  rows_ = rows, batch_ = std::move(options);
  return changed();
}

Pipeline& Pipeline::repeat(int64_t epochs) {
  if (epochs < 1) throw_invalid(fmt::format("[stream] repeat({}): expected 1 or more", epochs));
  epochs_ = epochs;
  return changed();
}

Pipeline& Pipeline::take(int64_t samples) {
  if (samples < 1 || samples > source_->size())
    throw_invalid(
        fmt::format("[stream] take({}): expected 1 to {}, which the source has", samples, source_->size()));
  taken_ = samples;
  return changed();
}

Pipeline& Pipeline::skip_broken(bool skips) {
  skips_broken_ = skips;
  return changed();
}

}  // namespace troupe::datasets
