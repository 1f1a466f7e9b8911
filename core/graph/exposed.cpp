// Bytes that the program has a pointer to count as somebody else's, which are never shared lazily.
#include "core/graph/exposed.h"

#include <string>

#include "core/base/error.h"

namespace troupe {

void expose(const Tensor& t, const char* writer) {
  begin_write(t, writer);
  if (!t.device().is_cpu())
    throw_invalid("[" + std::string(writer) + "] the host has no pointer to " + t.summary());
  t.storage()->expose();
}

}  // namespace troupe
