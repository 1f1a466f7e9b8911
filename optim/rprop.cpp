#include "optim/rprop.h"

namespace troupe::optim {

void RpropOptions::check() const {
  if (step_min > step_max)
    throw_invalid("[rprop] step_min must be at most step_max, got " + std::to_string(step_min) + " and " +
                  std::to_string(step_max));
}

}  // namespace troupe::optim
