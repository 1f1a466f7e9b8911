// Many futures as one: all of them, or the first.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/async/future.h"

namespace troupe {

/// When all() gives its error.
enum class OnError {
  wait,     ///< once all have ended: the first in the order of the futures, the same whatever the timing
  at_once,  ///< as soon as one fails: the first in time; those that nobody else waits for are cancelled
};

/// Interest in several futures, until the one that is made from them has its result.
template <class T>
Source sources_of(const std::vector<Future<T>>& futures) {
  return {std::make_shared<std::vector<Future<T>>>(futures), 0, [](void*, uint64_t, bool) {}};
}

/// Before anything waits for them: `invalid` if one is empty, naming its place. `what`: "all()".
template <class T>
void check_valid(const char* what, const std::vector<Future<T>>& futures) {
  for (size_t i = 0; i < futures.size(); ++i)
    if (!futures[i].valid())
      throw_invalid("[future] " + std::string(what) + ": future " + std::to_string(i) +
                    " is empty: it was made by default, or moved from");
}

/// The values of all futures, in their order; or an error if any of them fails.
template <class T>
Future<std::vector<NonVoid<T>>> all(const std::vector<Future<T>>& futures, OnError on_error = OnError::wait) {
  check_valid("all()", futures);
  struct Join {
    std::vector<std::optional<Result<T>>> results;
    std::atomic<size_t> left;
    Promise<std::vector<NonVoid<T>>> promise;
    void finish() {
      std::vector<NonVoid<T>> values;
      for (auto& r : results) {
        if (!r->ok()) return (void)promise.fail(r->error());
        values.push_back(std::move(*r).value());
      }
      promise.set(std::move(values));
    }
  };
  auto join = std::make_shared<Join>();
  join->results.resize(futures.size());
  join->left = futures.size();
  const auto joined = join->promise.future();
  if (futures.empty()) join->promise.set({});
  join->promise.waits_for(sources_of(futures));
  for (size_t i = 0; i < futures.size(); ++i) {
    futures[i].watch([join, i, on_error](const Result<T>& r) {
      join->results[i] = r;
      if (!r.ok() && on_error == OnError::at_once) join->promise.fail(r.error());
      if (--join->left == 0) join->finish();
    });
  }
  return joined;
}

/// The first value that arrives, with the position of its future; the others, if nobody else waits for them,
/// are cancelled. Fails only if all do, with the error of the first in their order. `invalid` at once for no
/// futures.
template <class T>
Future<std::pair<size_t, NonVoid<T>>> any(const std::vector<Future<T>>& futures) {
  if (futures.empty()) throw_invalid("[future] any() of no futures: nothing would ever arrive");
  check_valid("any()", futures);
  struct Race {
    std::optional<Error> first;  // error of the first future
    std::atomic<size_t> left;
    Promise<std::pair<size_t, NonVoid<T>>> promise;
  };
  auto race = std::make_shared<Race>();
  race->left = futures.size();
  const auto winner = race->promise.future();
  race->promise.waits_for(sources_of(futures));
  for (size_t i = 0; i < futures.size(); ++i) {
    futures[i].watch([race, i](const Result<T>& r) {
      if (r.ok())
        race->promise.set({i, r.value()});
      else if (i == 0)
        race->first = r.error();
      if (--race->left == 0 && race->first) race->promise.fail(*race->first);
    });
  }
  return winner;
}

}  // namespace troupe
