#include "data/streams/reading_plan.h"

#include <algorithm>
#include <cassert>

namespace troupe::datasets::detail {

bool ReadingPlan::anyone() const {
  return std::ranges::any_of(owes_, [](int64_t owed) { return owed >= 0; });
}

std::optional<ReadingPlan::Order> ReadingPlan::ask() {
  if (!anyone()) return {};
  auto at = std::ranges::find_if(asked_, [](const Asked& a) { return !a.reader && !a.there; });
  if (at == asked_.end()) {
    if (std::ssize(asked_) >= ahead_ || std::ssize(asked_) >= chunks_ - next_) return {};
    at = asked_.insert(asked_.end(), Asked{});
  }
  size_t least = owes_.size();
  for (size_t r = 0; r < owes_.size(); ++r)
    if (owes_[r] >= 0 && (least == owes_.size() || owes_[r] < owes_[least])) least = r;
  at->reader = least;
  ++owes_[least];
  return Order{next_ + (at - asked_.begin()), least};
}

void ReadingPlan::came(int64_t chunk) {
  Asked& asked = asked_[static_cast<size_t>(chunk - next_)];
  assert(asked.reader && !asked.there);
  asked.there = true;
  --owes_[*asked.reader];
}

void ReadingPlan::lost(size_t reader) {
  owes_[reader] = -1;
  for (Asked& asked : asked_)
    if (!asked.there && asked.reader == reader) asked.reader.reset();
}

void ReadingPlan::take() {
  assert(there());
  asked_.pop_front();
  ++next_;
}

}  // namespace troupe::datasets::detail
