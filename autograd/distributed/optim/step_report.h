// What became of something that was asked of many actors: who did it, and who failed and why.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace troupe::optim {

/// One actor's part in a step.
struct OwnerReport {
  std::string actor;    ///< "Layer#0:3 on w1"
  std::string worker;   ///< "w1"
  int64_t updated = 0;  ///< parameters that had a gradient and were changed; 0 if it failed
  std::optional<Error> error;
};

struct StepReport {
  std::vector<OwnerReport> owners;  ///< in the order of the optimizer's actors

  bool ok() const;
  int64_t updated() const;  ///< parameters, over all actors
  /// An error that names every actor that failed, with its text; empty if none did. Its kind is
  /// `disconnected` if a worker was lost (its name is worker()), otherwise that of the first. `what`: "the
  /// step".
  std::optional<Error> error(const std::string& what) const;
};

}  // namespace troupe::optim
