#include "troupe/attempt/vote.h"

#include <algorithm>

namespace troupe::internal {

std::string label_of(const AnyRef& actor) {
  return object_name(actor.type(), actor.id()) + " on " + actor.owner_name();
}

void Vote::before_step(const std::vector<AnyRef>&) {
  prepare_();
  const Lock lock(mutex_);
  under_way_.emplace_back();
}

void Vote::after_step(optim::StepReport& report) {
  const auto is_member_lost = [&](const optim::OwnerReport& o) {
    return o.error && o.error->kind() == ErrorKind::disconnected && members_.contains(o.actor);
  };
  const auto lost = std::ranges::count_if(report.owners, is_member_lost);
  const bool all = lost == std::ssize(report.owners);  // nobody has made it
  if (!all)
    for (auto& owner : report.owners)
      if (is_member_lost(owner)) owner.error.reset();
  Promise<void> ended;
  {
    const Lock lock(mutex_);
    lost_ |= lost > 0;
    ended = under_way_[ended_++];
  }
  ended.set();
}

Vote::Steps Vote::count() {
  std::vector<Promise<void>> begun;
  {
    const Lock lock(mutex_);
    begun = under_way_;
  }
  for (const auto& step : begun) step.future().get();
  const Lock lock(mutex_);
  under_way_.clear();
  return {static_cast<int>(std::exchange(ended_, 0)), std::exchange(lost_, false)};
}

}  // namespace troupe::internal
