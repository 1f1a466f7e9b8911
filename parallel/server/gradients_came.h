// Whether a backward pass has come by what a trainer has pulled in a context.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "core/tensor/tensor.h"

namespace troupe::parallel {

/// Of one client, for its thread or actor.
class GradientsCame {
 public:
  /// These were pulled in the context of the call, and are recorded there.
  void note_pull(const Tensors& values);
  /// `invalid`, naming the trainer, if a pass of the context that this worker has begun is under way, or none
  /// has brought a gradient to what was pulled there since the last push: it would count as an update.
  void check(const std::string& what, const std::string& trainer) const;
  /// What is pulled next belongs to another push.
  void note_push() { pushed_ = true; }

 private:
  uint64_t context_ = 0;
  bool pushed_ = false;
  std::shared_ptr<std::atomic<bool>> came_;  // null: nothing was pulled
};

}  // namespace troupe::parallel
