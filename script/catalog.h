// Everything that scripts can name, in sections.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "core/entry/entry.h"

namespace troupe::script {

struct Section {
  std::string prefix;  ///< "ops": they are called ops.NAME
  std::string title;   ///< "Operators and functions of tensors"
  std::vector<Entry> entries;
};

/// Operators, modules, optimizers, schedules and data sets, from their own tables.
const std::vector<Section>& catalog();

/// The entries called so, with their prefix: "ops.relu", "nn.relu".
std::vector<std::pair<std::string, Entry>> find_everywhere(std::string_view name);

}  // namespace troupe::script
