#include "parallel/pipeline/schedule/stage_map.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace troupe::parallel {

StageMap::StageMap(std::vector<std::vector<int64_t>> stages) : stages_(std::move(stages)) {
  size_t all = 0;
  for (const auto& of : stages_) all += of.size();
  at_.assign(all, {-1, -1});
  if (all == 0) throw_invalid("[schedule] a map of no stages");
  for (size_t w = 0; w < stages_.size(); ++w) {
    if (stages_[w].size() != stages_[0].size())
      throw_invalid(fmt::format("[schedule] w{} has {} stages, and w0 has {}: expected as many for each", w,
                                stages_[w].size(), stages_[0].size()));
    for (size_t c = 0; c < stages_[w].size(); ++c) {
      const int64_t s = stages_[w][c];
      if (s < 0 || s >= static_cast<int64_t>(all))
        throw_invalid(fmt::format("[schedule] w{} has stage {}, and there are {}, from 0", w, s, all));
      auto& at = at_[static_cast<size_t>(s)];
      if (at.first >= 0)
        throw_invalid(fmt::format("[schedule] stage {} is there twice, at w{} and w{}", s, at.first, w));
      at = {static_cast<int>(w), static_cast<int>(c)};
    }
  }
}

StageMap StageMap::loop(int workers, int chunks) {
  std::vector<std::vector<int64_t>> stages(static_cast<size_t>(workers));
  for (int w = 0; w < workers; ++w)
    for (int c = 0; c < chunks; ++c) stages[static_cast<size_t>(w)].push_back(int64_t{c} * workers + w);
  return StageMap(std::move(stages));
}

StageMap StageMap::v(int workers) {
  std::vector<std::vector<int64_t>> stages;
  for (int64_t w = 0; w < workers; ++w) stages.push_back({w, int64_t{2} * workers - 1 - w});
  return StageMap(std::move(stages));
}

}  // namespace troupe::parallel
