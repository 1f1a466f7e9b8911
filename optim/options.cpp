#include "optim/options.h"

namespace troupe::optim {

void check_option(const char* optimizer, const char* name, double value, double low, double high) {
  if (std::isfinite(value) && value >= low && value < high) return;
  throw_invalid("[" + std::string(optimizer) + "] option " + name + " must be " +
                (std::isfinite(high)  ? "in [" + std::to_string(low) + ", " + std::to_string(high) + ")"
                 : std::isfinite(low) ? "a finite number of at least " + std::to_string(low)
                                      : "a finite number") +
                ", got " + std::to_string(value));
}

}  // namespace troupe::optim
