#include "core/async/future_combinators.h"

#include <atomic>
#include <optional>
#include <string>

namespace troupe {

template Future<std::vector<Unit>> all<void>(const std::vector<Future<void>>& futures, OnError on_error);

namespace internal {
namespace {

// The interest of `promise` in these, until it has its result.
void want(const PromiseBase& promise, const FutureList& futures) {
  const auto wanted = std::make_shared<std::vector<FutureBase>>();
  for (size_t i = 0; i < futures.size(); ++i) wanted->push_back(futures[i]);
  promise.waits_for({wanted, 0, [](void*, uint64_t, bool) {}});
}

// Before anything waits for them. `what`: "all()".
void check_valid(const char* what, const FutureList& futures) {
  for (size_t i = 0; i < futures.size(); ++i)
    if (!futures[i].valid())
      throw_invalid("[future] " + std::string(what) + ": future " + std::to_string(i) +
                    " is empty: it was made by default, or moved from");
}

}  // namespace

void join(const FutureList& futures, OnError on_error, const PromiseBase& promise,
          void (*complete)(FutureCore&, const ReadyCores&)) {
  check_valid("all()", futures);
  struct Join {
    std::vector<std::weak_ptr<FutureCore>> awaited;  // their callbacks keep the join, not the other way round
    ReadyCores ready;
    std::atomic<size_t> left;
    PromiseBase promise;
    void (*complete)(FutureCore&, const ReadyCores&);
    Join(size_t count, const PromiseBase& promise, void (*complete)(FutureCore&, const ReadyCores&))
        : ready(count), left(count), promise(promise), complete(complete) {}
    void finish() {
      for (const auto& core : ready)
        if (const Error* error = core->error()) return (void)promise.fail(*error);
      complete(promise.core(), ready);
    }
  };
  const auto join = std::make_shared<Join>(futures.size(), promise, complete);
  for (size_t i = 0; i < futures.size(); ++i) join->awaited.push_back(futures[i].weak_core());
  if (futures.size() == 0) join->finish();
  want(promise, futures);
  for (size_t i = 0; i < futures.size(); ++i)
    futures[i].watch_end([join, on_error, i](FutureCore& core) {
      join->ready[i] = join->awaited[i].lock();
      if (const Error* error = core.error(); error && on_error == OnError::at_once)
        join->promise.fail(*error);
      if (--join->left == 0) join->finish();
    });
}

void race(const FutureList& futures, const PromiseBase& promise,
          void (*complete)(FutureCore&, size_t, const FutureCore&)) {
  if (futures.size() == 0) throw_invalid("[future] any() of no futures: nothing would ever arrive");
  check_valid("any()", futures);
  struct Race {
    std::optional<Error> first;  // error of the first future
    std::atomic<size_t> left;
    PromiseBase promise;
    void (*complete)(FutureCore&, size_t, const FutureCore&);
    Race(size_t count, const PromiseBase& promise, void (*complete)(FutureCore&, size_t, const FutureCore&))
        : left(count), promise(promise), complete(complete) {}
  };
  const auto race = std::make_shared<Race>(futures.size(), promise, complete);
  want(promise, futures);
  for (size_t i = 0; i < futures.size(); ++i)
    futures[i].watch_end([race, i](FutureCore& core) {
      const Error* error = core.error();
      if (!error)
        race->complete(race->promise.core(), i, core);
      else if (i == 0)
        race->first = *error;
      if (--race->left == 0 && race->first) race->promise.fail(*race->first);
    });
}

}  // namespace internal
}  // namespace troupe
