#include "core/entry/maker.h"

#include "core/base/error.h"

namespace troupe::internal {

void set_types(Entry& entry, std::initializer_list<std::string (*)()> types) {
  if (types.size() != entry.parameters.size())
    throw_invalid("entry " + entry.name + " names " + std::to_string(entry.parameters.size()) +
                  " parameters; its function has " + std::to_string(types.size()));
  auto parameter = entry.parameters.begin();
  for (const auto& type : types) (parameter++)->type = type();
}

}  // namespace troupe::internal
