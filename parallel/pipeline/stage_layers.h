// Which of a model's layers a stage has.
#pragma once
#include <cstddef>
#include <string_view>
#include <vector>

#include "collective/mesh.h"

namespace troupe::parallel {

/// The layers of one of several stages, as evenly as they go, by their numbers in the whole model:
///
///   const parallel::StageLayers own(mesh, 12);
///   if (own.first()) embedding.emplace(words, width);
///   for (const size_t b : own) blocks.try_emplace(b, width, heads);
///   if (own.last()) head.emplace(width, words);
class StageLayers {
 public:
  /// Of the member that asks, in the dimension of the stages.
  StageLayers(const Mesh& mesh, size_t layers, std::string_view stages = "pp");
  /// A stage has none if there are fewer layers than stages. `invalid` if there is no such stage.
  StageLayers(size_t layers, size_t stage, size_t stages);

  bool first() const { return stage_ == 0; }
  bool last() const { return stage_ + 1 == stages_; }
  size_t size() const { return numbers_.size(); }
  auto begin() const { return numbers_.begin(); }
  auto end() const { return numbers_.end(); }

 private:
  size_t stage_, stages_;
  std::vector<size_t> numbers_;
};

}  // namespace troupe::parallel
