// Many futures as one: all of them, or the first.
#pragma once
#include <cstddef>
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

/// Futures of one type, seen without it.
class FutureList {
 public:
  template <class T>
  FutureList(const std::vector<Future<T>>& futures)
      : futures_(&futures), size_(futures.size()), at_([](const void* list, size_t i) -> const FutureBase& {
          return (*static_cast<const std::vector<Future<T>>*>(list))[i];
        }) {}
  size_t size() const { return size_; }
  const FutureBase& operator[](size_t i) const { return at_(futures_, i); }

 private:
  const void* futures_;
  size_t size_;
  const FutureBase& (*at_)(const void* list, size_t i);
};

/// Of futures of one type, all of which have their results.
using ReadyCores = std::vector<std::shared_ptr<FutureCore>>;
/// The part of all() that does not depend on the type: calls complete(state of the promise, futures) if all
/// end well, or fails the promise. `invalid` at once if a future is empty, naming its place.
void join(const FutureList& futures, OnError on_error, const PromiseBase& promise,
          void (*complete)(FutureCore& state, const ReadyCores& ready));
/// The same of any(): calls complete() for each that ends well.
void race(const FutureList& futures, const PromiseBase& promise,
          void (*complete)(FutureCore& state, size_t index, const FutureCore& ready));

}  // namespace internal

/// The values of all futures, in their order; or an error if any of them fails.
template <class T>
Future<std::vector<NonVoid<T>>> all(const std::vector<Future<T>>& futures, OnError on_error = OnError::wait) {
  using Values = std::vector<NonVoid<T>>;
  const Promise<Values> promise;
  auto joined = promise.future();
  internal::join(futures, on_error, promise, [](FutureCore& state, const internal::ReadyCores& ready) {
    Values values;
    values.reserve(ready.size());
    for (const auto& core : ready) values.push_back(static_cast<const FutureState<T>&>(*core).result.value());
    static_cast<FutureState<Values>&>(state).complete(std::move(values));
  });
  return joined;
}

extern template Future<std::vector<Unit>> all<void>(const std::vector<Future<void>>& futures,
                                                    OnError on_error);

/// The first value that arrives, with the position of its future; the others, if nobody else waits for them,
/// are cancelled. Fails only if all do, with the error of the first in their order. `invalid` at once for no
/// futures.
template <class T>
Future<std::pair<size_t, NonVoid<T>>> any(const std::vector<Future<T>>& futures) {
  using First = std::pair<size_t, NonVoid<T>>;
  const Promise<First> promise;
  auto winner = promise.future();
  internal::race(futures, promise, [](FutureCore& state, size_t i, const FutureCore& core) {
    static_cast<FutureState<First>&>(state).complete(
        First{i, static_cast<const FutureState<T>&>(core).result.value()});
  });
  return winner;
}

}  // namespace troupe
