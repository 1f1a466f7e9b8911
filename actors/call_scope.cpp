#include "actors/call_scope.h"

#include <optional>
#include <utility>
#include <vector>

#include "core/base/mutex.h"

namespace troupe {

struct CallScope::Group {
  void ended(std::optional<Error> why);
  internal::Mutex mutex;
  size_t open TROUPE_GUARDED_BY(mutex) = 1;  // calls that have not ended, and the scope until it is joined
  std::optional<Error> error TROUPE_GUARDED_BY(mutex);
  std::vector<std::function<void()>> cancel TROUPE_GUARDED_BY(mutex);
  Promise<void> promise;
};

CallScope::CallScope()
    : group_(std::make_shared<Group>()), outer_(std::exchange(frame().scope, this).get()) {}

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

void CallScope::add(const FutureBase& future) {
  if (!future.valid()) throw_invalid("[call] a scope was given an empty future");
  if (!enter(future.canceller())) return;
  future.on_end(
      [group = group_](const Error* error) { group->ended(error ? std::optional(*error) : std::nullopt); });
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
