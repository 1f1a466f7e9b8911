#include "optim/options.h"

#include <fmt/format.h>

#include <algorithm>

namespace troupe::optim {

void refuse_unknown_option(const char* optimizer, const std::string& name, std::vector<std::string> known) {
  const std::string near = nearest(name, known);
  std::stable_partition(known.begin(), known.end(), [&](const std::string& k) { return k == near; });
  const std::string all = fmt::format("{}", fmt::join(known, ", "));
  throw_invalid(fmt::format(
      "[{}] option \"{}\" is unknown; {}", optimizer, name,
      near.empty() ? "known: " + all : fmt::format("did you mean \"{}\"? (known: {})", near, all)));
}

void check_order(const char* optimizer, const char* low_name, double low, const char* high_name,
                 double high) {
  if (low > high)
    throw_invalid(
        fmt::format("[{}] {} must be at most {}, got {} and {}", optimizer, low_name, high_name, low, high));
}

void check_option(const char* optimizer, const char* name, double value, double low, double high) {
  if (std::isfinite(value) && value >= low && value < high) return;
  throw_invalid(fmt::format("[{}] option {} must be {}, got {}", optimizer, name,
                            std::isfinite(high)  ? fmt::format("in [{}, {})", low, high)
                            : std::isfinite(low) ? fmt::format("a finite number of at least {}", low)
                                                 : "a finite number",
                            value));
}

}  // namespace troupe::optim
