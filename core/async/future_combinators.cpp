#include "core/async/future_combinators.h"

#include <atomic>
#include <optional>
#include <string>

namespace troupe::internal {
namespace {

// The interest of `promise` in these, until it has its result.
void want(const PromiseBase& promise, const std::vector<FutureBase>& futures) {
  promise.waits_for({std::make_shared<std::vector<FutureBase>>(futures), 0, [](void*, uint64_t, bool) {}});
}

// Calls ended(i, core) when future i has its result; that of a future that nobody wants any more as well.
template <class F>
void watch_each(const std::vector<FutureBase>& futures, const F& ended) {
  for (size_t i = 0; i < futures.size(); ++i) {
    auto watch = [ended, i](FutureCore& core) { ended(i, core); };
    const auto run = [](void* function, FutureCore& core) {
      (*static_cast<decltype(watch)*>(function))(core);
    };
    FutureCore& core = futures[i].core();
    if (core.ready.is_set())
      core.run_now(&watch, run);
    else
      core.add(FutureCallback(std::move(watch), run));
  }
}

}  // namespace

void check_valid(const char* what, const std::vector<FutureBase>& futures) {
  for (size_t i = 0; i < futures.size(); ++i)
    if (!futures[i].valid())
      throw_invalid("[future] " + std::string(what) + ": future " + std::to_string(i) +
                    " is empty: it was made by default, or moved from");
}

void join(const std::vector<FutureBase>& futures, OnError on_error, const PromiseBase& promise,
          std::function<void(const ReadyCores&)> complete) {
  struct Join {
    std::vector<std::weak_ptr<FutureCore>> awaited;  // their callbacks keep the join, not the other way round
    ReadyCores ready;
    std::atomic<size_t> left;
    PromiseBase promise;
    std::function<void(const ReadyCores&)> complete;
    Join(size_t count, const PromiseBase& promise, std::function<void(const ReadyCores&)> complete)
        : ready(count), left(count), promise(promise), complete(std::move(complete)) {}
    void finish() {
      for (const auto& core : ready)
        if (const Error* error = core->error()) return (void)promise.fail(*error);
      complete(ready);
    }
  };
  const auto join = std::make_shared<Join>(futures.size(), promise, std::move(complete));
  for (const FutureBase& future : futures) join->awaited.push_back(future.weak_core());
  if (futures.empty()) join->finish();
  want(promise, futures);
  watch_each(futures, [join, on_error](size_t i, FutureCore& core) {
    join->ready[i] = join->awaited[i].lock();
    if (const Error* error = core.error(); error && on_error == OnError::at_once) join->promise.fail(*error);
    if (--join->left == 0) join->finish();
  });
}

void race(const std::vector<FutureBase>& futures, const PromiseBase& promise,
          std::function<void(size_t, const FutureCore&)> complete) {
  struct Race {
    std::optional<Error> first;  // error of the first future
    std::atomic<size_t> left;
    PromiseBase promise;
    std::function<void(size_t, const FutureCore&)> complete;
    Race(size_t count, const PromiseBase& promise, std::function<void(size_t, const FutureCore&)> complete)
        : left(count), promise(promise), complete(std::move(complete)) {}
  };
  const auto race = std::make_shared<Race>(futures.size(), promise, std::move(complete));
  want(promise, futures);
  watch_each(futures, [race](size_t i, FutureCore& core) {
    const Error* error = core.error();
    if (!error)
      race->complete(i, core);
    else if (i == 0)
      race->first = *error;
    if (--race->left == 0 && race->first) race->promise.fail(*race->first);
  });
}

}  // namespace troupe::internal
