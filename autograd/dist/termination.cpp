#include "autograd/dist/termination.h"

#include <algorithm>

namespace troupe::autograd {

void Termination::announce(SentGrad sent) {
  Message& m = open_[sent.id];
  m.announced = true;
  m.to = sent.to;
  if (m.reported) open_.erase(sent.id);
}

void Termination::handled(GradMessageId id, const std::vector<SentGrad>& children) {
  for (const SentGrad& child : children) announce(child);  // first: the set must not look empty in between
  Message& m = open_[id];
  m.reported = true;
  if (m.announced) open_.erase(id);
}

void Termination::fail(const Error& why) {
  if (!over()) failure_ = why;
}

void Termination::lost(WorkerId worker, const Error& why) {
  for (const auto& [id, m] : open_)
    if (m.announced && m.to == worker) return fail(why);
}

void Termination::lost(const std::vector<GradMessageId>& messages, const Error& why) {
  for (GradMessageId id : messages)
    if (auto at = open_.find(id); at != open_.end() && at->second.announced) return fail(why);
}

std::vector<WorkerId> Termination::outstanding() const {
  std::vector<WorkerId> out;
  for (const auto& [id, m] : open_)
    if (m.announced && std::find(out.begin(), out.end(), m.to) == out.end()) out.push_back(m.to);
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace troupe::autograd
