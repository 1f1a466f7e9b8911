#include "autograd/distributed/optim/whole_tensor.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace troupe::optim {

void WholeTensor::add(const std::string& who, const Tensor& part, const Placement& place) {
  if (!all_) all_.emplace(part.dtype(), place.whole), first_ = who;
  const Tensor& whole = all_->whole();
  if (part.dtype() != whole.dtype() || place.whole != whole.shape())
    throw_invalid(fmt::format("{} is {} {} for {}, and {} {} for {}", what_, name(whole.dtype()),
                              whole.shape().str(), first_, name(part.dtype()), place.whole.str(), who));
  place.for_each_run([&](int64_t to, int64_t from, int64_t count) {
    if (!all_->add(part, to, from, count))
      throw_invalid(
          fmt::format("{} has other elements for {} than for actors before it: {}", what_, who, remedy_));
  });
}

}  // namespace troupe::optim
