// In which halves a thread computes: its mode of mixed precision.
#pragma once
#include <cstdint>

#include "core/tensor/dtype.h"

namespace troupe {

/// In which halves matrix products and their like compute.
enum class Autocast : uint8_t { off, bfloat16, float16 };

namespace internal {
struct KeptCasts;          // of kept_cast()
KeptCasts*& kept_casts();  // of this thread; null while the mode is off
void forget(KeptCasts* casts);
}  // namespace internal

/// The mode of this thread. See AutocastGuard.
Autocast autocast_mode();
/// A mode that is on has one.
constexpr DType dtype_of_mode(Autocast mode) {
  return mode == Autocast::float16 ? DType::float16 : DType::bfloat16;
}

/// Sets the mode of the thread for a scope. Casts of parameters are kept while it is on (kept_cast()).
class AutocastMode {
 public:
  explicit AutocastMode(Autocast mode);
  ~AutocastMode();
  AutocastMode(const AutocastMode&) = delete;
  AutocastMode& operator=(const AutocastMode&) = delete;

 private:
  Autocast before_;
};

}  // namespace troupe
