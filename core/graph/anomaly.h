// The hunt for the operator that first makes a NaN.
#pragma once
#include <atomic>
#include <string>

#include "core/tensor/tensor.h"

namespace troupe {

/// What operators check, forward and backward, on all threads of the process.
enum class Anomaly : uint8_t {
  off,  ///< nothing: costs one load per operator
  nan,  ///< no result, and no gradient, has a NaN
  inf,  ///< nor an infinity
};

/// What is checked now.
Anomaly anomaly_mode();

/// Turns the checks on for a scope, for all threads: a distributed backward pass runs on those of its actors.
/// An operator that makes a NaN throws `failed`: the text names it, its inputs' shapes, and where and when it
/// was recorded if the backward pass made the NaN (steps that were recorded under the guard know where).
/// Slow.
class AnomalyGuard {
 public:
  explicit AnomalyGuard(Anomaly mode = Anomaly::nan);
  ~AnomalyGuard();
  AnomalyGuard(const AnomalyGuard&) = delete;
  AnomalyGuard& operator=(const AnomalyGuard&) = delete;

 private:
  Anomaly before_;
};

namespace internal {

/// "a NaN at [0, 3], and 4 more", or empty if `t` has nothing that `mode` looks for.
std::string find_anomaly(const Tensor& t, Anomaly mode);

}  // namespace internal

}  // namespace troupe
