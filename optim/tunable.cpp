#include "optim/tunable.h"

#include <fmt/format.h>

#include <vector>

#include "core/base/error.h"

namespace troupe::optim {

double Tunable::number(const std::string& name, size_t group) const {
  if (group >= group_count())
    throw_invalid(fmt::format("[optim] there is no group {}: there are {}", group, group_count()));
  const ValueMap options = options_map(group);
  const auto it = options.find(name);
  const double* value = it == options.end() ? nullptr : it->second.get_if<double>();
  if (!value) {
    std::vector<std::string> known;
    for (const auto& [key, v] : options)
      if (v.get_if<double>()) known.push_back(key);
    throw_invalid(fmt::format("[optim] there is no option \"{}\" that is a number; there are {}", name,
                              fmt::join(known, ", ")));
  }
  return *value;
}

void Tunable::set_lr(double lr) {
  for (size_t g = 0; g < group_count(); ++g) change_options(g, {{"lr", lr}});
}

}  // namespace troupe::optim
