// Which of a model's layers a stage has.
#pragma once
#include <cstddef>
#include <iterator>
#include <string_view>
#include <vector>

#include "collective/mesh.h"
#include "core/base/generator.h"

namespace troupe::parallel {

/// The layers of one of several stages, as evenly as they go, by their numbers in the whole model:
///
///   const parallel::StageLayers own(mesh, 12);
///   if (own.first()) embedding.emplace(words, width);
///   for (const size_t b : own) blocks.try_emplace(b, width, heads);
///   if (own.last()) head.emplace(width, words);
///
/// In the loop a layer draws its initial values as the one of its number, and what comes behind the loop
/// draws as what comes behind all layers: so one seed gives one model, however it is cut into stages.
class StageLayers {
 public:
  /// Of the member that asks, in the dimension of the stages.
  StageLayers(const Mesh& mesh, size_t layers, std::string_view stages = "pp");
  /// A stage has none if there are fewer layers than stages. `invalid` if there is no such stage.
  StageLayers(size_t layers, size_t stage, size_t stages);

  /// The layers before which the stages behind the first begin; a stage may have none. Empty: as evenly as
  /// they go. `invalid` unless they ascend and are as many.
  StageLayers(const Mesh& mesh, size_t layers, const std::vector<size_t>& cuts,
              std::string_view stages = "pp");

  bool first() const { return stage_ == 0; }
  bool last() const { return stage_ + 1 == stages_; }
  size_t size() const { return numbers_.size(); }

  /// It sets the current stream (core/base/seed_stream.h) to where the layer draws, or what is behind all.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = size_t;
    using difference_type = std::ptrdiff_t;
    using pointer = const size_t*;
    using reference = size_t;
    Iterator(const StageLayers& layers, size_t at) : layers_(&layers), at_(at) {}
    size_t operator*() const { return layers_->numbers_[at_]; }
    Iterator& operator++() {
      layers_->draw(++at_);
      return *this;
    }
    bool operator==(const Iterator& o) const { return at_ == o.at_; }

   private:
    const StageLayers* layers_;
    size_t at_;
  };
  Iterator begin() const {
    draw(0);
    return {*this, 0};
  }
  Iterator end() const { return {*this, numbers_.size()}; }

 private:
  void draw(size_t at) const;
  void take(size_t from, size_t to);
  size_t stage_, stages_, layers_;
  Generator::Position drawn_;  // where the stream was before
  std::vector<size_t> numbers_;
};

}  // namespace troupe::parallel
