// What is made while an object is constructed: its parameters and modules, which nobody has to list then.
#pragma once
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/tensor/tensor.h"

namespace troupe {

/// Leaves that were marked by requires_grad_, and the numbers of modules (nn/module_registry.h), in the
/// order in which they were made.
struct MadeParts {
  Tensors leaves;
  std::vector<uint64_t> modules;
};

/// While one is alive, it hears of what its thread makes, unless `owner` is not the actor at work: other
/// messages may be handled meanwhile. They may lie in each other: the innermost hears.
class ConstructionScope {
 public:
  ConstructionScope(std::shared_ptr<MadeParts> parts, const void* owner)
      : parts_(std::move(parts)), owner_(owner), outer_(std::exchange(current_, this)) {}
  ~ConstructionScope();
  ConstructionScope(const ConstructionScope&) = delete;
  ConstructionScope& operator=(const ConstructionScope&) = delete;

  static void note_leaf(const Tensor& leaf) {
    if (current_) [[unlikely]]
      current_->add(leaf);
  }
  static void note_module(uint64_t number) {
    if (current_) [[unlikely]]
      current_->add(number);
  }
  /// Of the innermost scope of this thread; null: there is none.
  static std::shared_ptr<MadeParts> parts() { return current_ ? current_->parts_ : nullptr; }

 private:
  void add(const Tensor& leaf);
  void add(uint64_t module);
  bool hears() const;
  static inline constinit thread_local ConstructionScope* current_ = nullptr;
  std::shared_ptr<MadeParts> parts_;
  const void* owner_;
  ConstructionScope* outer_;
};

}  // namespace troupe
