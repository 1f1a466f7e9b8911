#include "actors/call_scope.h"

#include <utility>

namespace troupe {

CallScope::CallScope() : outer_(std::exchange(frame().scope, this).get()) {}

CallScope::~CallScope() {
  if (joined_) return;
  frame().scope = outer_;
  group_->ended(Error(ErrorKind::cancelled, "[call] the scope of the call was left early"));
}

Future<void> CallScope::joined() {
  if (!std::exchange(joined_, true)) {
    frame().scope = outer_;
    group_->ended(std::nullopt);
  }
  return group_->promise.future();
}

// A call more, that is not left to itself if it is late. False: it has been cancelled.
bool CallScope::enter(std::function<void()> cancel) {
  {
    internal::Lock lock(group_->mutex);
    if (!group_->error) {
      ++group_->open;
      group_->cancel.push_back(std::move(cancel));
      return true;
    }
  }
  cancel();
  return false;
}

void CallScope::Group::ended(std::optional<Error> why) {
  std::vector<std::function<void()>> others;
  std::optional<Error> first;
  bool last;
  {
    internal::Lock lock(mutex);
    if (why && !error) {
      error = std::move(why);
      others.swap(cancel);
    }
    last = --open == 0;
    if (last) first = error, others.swap(cancel);  // whose futures may go
  }
  if (!last)
    for (auto& c : others) c();
  if (!last) return;
  if (first)
    promise.fail(*first);
  else
    promise.set();
}

}  // namespace troupe
