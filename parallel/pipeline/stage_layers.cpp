#include "parallel/pipeline/stage_layers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/seed_stream.h"
#include "parallel/tensor/convert.h"

namespace troupe::parallel {

StageLayers::StageLayers(const Mesh& mesh, size_t layers, std::string_view stages)
    : StageLayers(layers, mesh.coordinate(stages), mesh.size(stages)) {}

StageLayers::StageLayers(size_t layers, size_t stage, size_t stages)
    : stage_(stage), stages_(stages), layers_(layers), drawn_(current_stream().position()) {
  if (stage >= stages) throw_invalid(fmt::format("[stages] there is no stage {} of {}", stage, stages));
  const auto sizes = tp::even_sizes(static_cast<int64_t>(layers), stages);
  size_t from = 0;
  for (size_t s = 0; s < stage; ++s) from += static_cast<size_t>(sizes[s]);
  take(from, from + static_cast<size_t>(sizes[stage]));
}

StageLayers::StageLayers(const Mesh& mesh, size_t layers, const std::vector<size_t>& cuts,
                         std::string_view stages)
    : StageLayers(mesh, layers, stages) {
  if (cuts.empty()) return;
  if (cuts.size() + 1 != stages_ || !std::ranges::is_sorted(cuts) || cuts.back() > layers)
    throw_invalid(
        fmt::format("[stages] cuts before layers {} of {} do not make {} stages: expected {}, "
                    "ascending",
                    fmt::join(cuts, ", "), layers, stages_, stages_ - 1));
  numbers_.clear();
  take(stage_ ? cuts[stage_ - 1] : 0, stage_ < cuts.size() ? cuts[stage_] : layers);
}

void StageLayers::take(size_t from, size_t to) {
  for (size_t i = from; i < to; ++i) numbers_.push_back(i);
}

// Stages have begun with the same stream, of which each layer has a part of its own.
void StageLayers::draw(size_t at) const {
  const uint64_t number = at < numbers_.size() ? numbers_[at] : layers_;
  current_stream().set_position({splitmix64(Generator::number(drawn_) ^ splitmix64(number + 1)), 0});
}

}  // namespace troupe::parallel
