// Many futures as one: all of them, or the first.
#pragma once
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/async/future.h"

namespace troupe {

/// When all() gives its error.
enum class OnError {
  wait,     ///< once all have ended: the first in the order of the futures, the same whatever the timing
  at_once,  ///< as soon as one fails: the first in time; those that nobody else waits for are cancelled
};

namespace internal {

/// Before anything waits for them: `invalid` if one is empty, naming its place. `what`: "all()".
void check_valid(const char* what, const std::vector<FutureBase>& futures);

/// Of futures of one type, all of which have their results.
using ReadyCores = std::vector<std::shared_ptr<FutureCore>>;
/// The part of all() that does not depend on the type: calls complete() if all end well, or fails the
/// promise.
void join(const std::vector<FutureBase>& futures, OnError on_error, const PromiseBase& promise,
          std::function<void(const ReadyCores&)> complete);
/// The same of any(): calls complete() for each that ends well.
void race(const std::vector<FutureBase>& futures, const PromiseBase& promise,
          std::function<void(size_t index, const FutureCore&)> complete);

/// The same futures without their type.
template <class T>
std::vector<FutureBase> bases_of(const std::vector<Future<T>>& futures) {
  std::vector<FutureBase> out;
  out.reserve(futures.size());
  for (const FutureBase& future : futures) out.push_back(future);
  return out;
}

}  // namespace internal

/// The values of all futures, in their order; or an error if any of them fails.
template <class T>
Future<std::vector<NonVoid<T>>> all(const std::vector<Future<T>>& futures, OnError on_error = OnError::wait) {
  const std::vector<FutureBase> bases = internal::bases_of(futures);
  internal::check_valid("all()", bases);
  const Promise<std::vector<NonVoid<T>>> promise;
  const auto joined = promise.future();
  internal::join(bases, on_error, promise, [promise](const internal::ReadyCores& ready) {
    std::vector<NonVoid<T>> values;
    values.reserve(ready.size());
    for (const auto& core : ready) values.push_back(static_cast<const FutureState<T>&>(*core).result.value());
    promise.set(std::move(values));
  });
  return joined;
}

/// The first value that arrives, with the position of its future; the others, if nobody else waits for them,
/// are cancelled. Fails only if all do, with the error of the first in their order. `invalid` at once for no
/// futures.
template <class T>
Future<std::pair<size_t, NonVoid<T>>> any(const std::vector<Future<T>>& futures) {
  if (futures.empty()) throw_invalid("[future] any() of no futures: nothing would ever arrive");
  const std::vector<FutureBase> bases = internal::bases_of(futures);
  internal::check_valid("any()", bases);
  const Promise<std::pair<size_t, NonVoid<T>>> promise;
  const auto winner = promise.future();
  internal::race(bases, promise, [promise](size_t i, const FutureCore& core) {
    promise.set({i, static_cast<const FutureState<T>&>(core).result.value()});
  });
  return winner;
}

}  // namespace troupe
