#include "actors/cell/unheard.h"

#include <utility>

#include "core/base/log.h"

namespace troupe::internal::actors {

void Unheard::failed(const ObjectId& id, const std::string& what, const Error& why) {
  if (why.kind() == ErrorKind::disconnected || why.kind() == ErrorKind::cancelled) return;
  Lock lock(mutex_);
  if (failures_.size() < kMost) failures_.try_emplace(id, Failure{what + ": " + why.what()});
  count_ = failures_.size();
}

void Unheard::heard(const ObjectId& id) {
  if (count_ == 0) return;
  Lock lock(mutex_);
  failures_.erase(id);
  count_ = failures_.size();
}

void Unheard::gone(const ObjectId& id) {
  if (count_ == 0) return;
  Lock lock(mutex_);
  if (const auto at = failures_.find(id); at != failures_.end()) log(at->second);
}

std::vector<std::string> Unheard::take() {
  Lock lock(mutex_);
  std::vector<std::string> texts;
  size_t logged = 0;
  for (auto& [id, failure] : failures_)
    failure.logged ? (void)++logged : texts.push_back(std::move(failure.text));
  if (logged)
    texts.push_back("nobody was told of " +
                    (logged > 1 ? std::to_string(logged) + " failures, which the log of their worker has"
                                : "a failure, which the log of its worker has"));
  failures_.clear();
  count_ = 0;
  return texts;
}

void Unheard::end() {
  Lock lock(mutex_);
  for (auto& [id, failure] : failures_) log(failure);
}

void Unheard::log(Failure& failure) {
  if (!std::exchange(failure.logged, true)) internal::log::error(failure.text);
}

}  // namespace troupe::internal::actors
