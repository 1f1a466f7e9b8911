#include "autograd/distributed/termination.h"

#include <algorithm>
#include <utility>

#include "core/value/owned_number.h"

namespace troupe::autograd {

void Termination::announce(SentGrad sent) {
  Message& m = open_[sent.id];
  if (m.reported) {
    open_.erase(sent.id);
  } else if (!std::exchange(m.announced, true)) {
    m.to = sent.to;
    ++under_way_;
  }
}

void Termination::handled(GradMessageId id, const std::vector<SentGrad>& children) {
  for (const SentGrad& child : children) announce(child);  // first: the set must not look empty in between
  if (!forget(id)) open_[id].reported = true;
}

// True if it was under way.
bool Termination::forget(GradMessageId id) {
  auto at = open_.find(id);
  if (at == open_.end() || !at->second.announced) return false;
  open_.erase(at);
  --under_way_;
  return true;
}

void Termination::fail(const Error& why) {
  if (!over()) failure_ = why;
}

void Termination::lost(WorkerId worker, const Error& why) {
  std::vector<GradMessageId> gone;
  for (const auto& [id, m] : open_)
    if (m.announced && (m.to == worker || internal::owner_of_number(id) == worker)) gone.push_back(id);
  lost(gone, why);
}

void Termination::lost(const std::vector<GradMessageId>& messages, const Error& why) {
  for (GradMessageId id : messages) {
    auto at = open_.find(id);
    if (at == open_.end() || !at->second.announced) continue;
    fail(why);  // first: the set must not look empty
    forget(id);
  }
}

std::vector<WorkerId> Termination::outstanding() const {
  std::vector<WorkerId> out;
  for (const auto& [id, m] : open_)
    if (m.announced && std::find(out.begin(), out.end(), m.to) == out.end()) out.push_back(m.to);
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace troupe::autograd
