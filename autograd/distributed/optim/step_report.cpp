#include "autograd/distributed/optim/step_report.h"

#include <algorithm>

namespace troupe::optim {

bool StepReport::ok() const {
  return std::none_of(owners.begin(), owners.end(), [](const OwnerReport& o) { return o.error.has_value(); });
}

int64_t StepReport::updated() const {
  int64_t sum = 0;
  for (const OwnerReport& o : owners) sum += o.updated;
  return sum;
}

std::optional<Error> StepReport::error(const std::string& what) const {
  const Error* first = nullptr;
  std::string texts;
  size_t failed = 0;
  for (const OwnerReport& o : owners) {
    if (!o.error) continue;
    ++failed;
    texts += (texts.empty() ? "" : "; ") + o.actor + ": " + o.error->message();
    const bool lost = o.error->kind() == ErrorKind::disconnected;
    if (!first || (lost && first->kind() != ErrorKind::disconnected)) first = &*o.error;
  }
  if (!first) return std::nullopt;
  return Error(first->kind(),
               "[optim] " + what + " failed on " + std::to_string(failed) + " of " +
                   std::to_string(owners.size()) + " actors: " + texts,
               first->trail(), first->worker());
}

}  // namespace troupe::optim
