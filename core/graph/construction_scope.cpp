#include "core/graph/construction_scope.h"

#include <algorithm>

#include "core/base/call_frame.h"

namespace troupe {

bool ConstructionScope::hears() const { return frame().actor == owner_; }

void ConstructionScope::add(const Tensor& leaf) {
  const bool known = std::any_of(parts_->leaves.begin(), parts_->leaves.end(),
                                 [&](const Tensor& t) { return t.impl() == leaf.impl(); });
  if (hears() && !known) parts_->leaves.push_back(leaf);
}

void ConstructionScope::add(uint64_t module) {
  if (hears()) parts_->modules.push_back(module);
}

// What nobody else holds was made in passing.
ConstructionScope::~ConstructionScope() {
  current_ = outer_;
  std::erase_if(parts_->leaves, [](const Tensor& t) { return t.is_sole_handle(); });
}

}  // namespace troupe
