// Sources of whole models, from which actors get their pieces.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor/tensor.h"

namespace troupe::parallel {

/// The tensors of a model by the names that actors have for them.
class WholeSource {
 public:
  virtual ~WholeSource() = default;
  virtual std::vector<std::pair<std::string, Shape>> entries() const = 0;
  virtual bool contains(const std::string& name) const = 0;
  /// Read, or made, when it is asked for.
  virtual Tensor tensor(const std::string& name) const = 0;
};

using WholeReader = std::function<std::shared_ptr<const WholeSource>(const std::string& path)>;

/// A way of reading models for load_whole(), known by name to every worker of the program. "" is a
/// safetensors file with the actors' own names.
void register_whole_reader(const std::string& name, WholeReader reader);
/// Opens a file by such a way. `invalid` as that, and for one that is not known.
std::shared_ptr<const WholeSource> open_whole(const std::string& path, const std::string& reader);

}  // namespace troupe::parallel
