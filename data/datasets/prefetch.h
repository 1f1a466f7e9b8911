// Batches prepared in the background, in the order in which they will be used.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>

#include "core/base/error.h"
#include "data/datasets/loader.h"
#include "data/datasets/padding.h"

namespace troupe::datasets {

struct PrefetchOptions {
  int64_t threads = 1;  ///< 1 to 256; more than `ahead` have nothing to do
  /// Items that are ready or being made while the consumer is busy: at most this many.
  int64_t ahead = 4;
  /// Bytes of items that are ready or being made, judged by the largest so far: none is begun beyond this,
  /// but the one that the consumer needs next always is.
  size_t bytes = size_t{256} << 20;
};

namespace detail {

/// The queue behind Prefetch, for items of any type.
class Prefetcher {
 public:
  /// Makes item number `index` and says its bytes; null: there is none, this is the end.
  using Make = std::function<std::shared_ptr<void>(int64_t index, size_t& bytes)>;
  Prefetcher(int64_t count, Make make, const PrefetchOptions& options);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  std::shared_ptr<void> next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

inline size_t held_bytes(const Tensor& t) { return t.defined() ? t.nbytes() : 0; }
inline size_t held_bytes(const Dataset& d) { return held_bytes(d.x) + held_bytes(d.y); }
inline size_t held_bytes(const Batch& b) { return held_bytes(b.x) + held_bytes(b.y); }
inline size_t held_bytes(const Padded& p) {
  return held_bytes(p.values) + held_bytes(p.lengths) + held_bytes(p.mask);
}
template <class T>
size_t held_bytes(const T&) {
  return sizeof(T);
}

}  // namespace detail

/// Calls make(0), make(1), ... on threads of its own, ahead of the consumer, who gets the results in that
/// order however many threads there are. Memory is bounded by `ahead` and `bytes`; a thread that may not go
/// on sleeps.
///
/// `make` gives nothing at the end. With several threads it is called by several at once, and its result must
/// depend on the index only; with one, in order, so it may read a file. An exception that it throws comes out
/// of next() in its place, after the items before it, and again at every further call. One consumer. The
/// destructor waits for the items being made, and drops the rest.
template <class T>
class Prefetch {
 public:
  using Make = std::function<std::optional<T>(int64_t index)>;
  using Bytes = std::function<size_t(const T&)>;

  /// `invalid`: an option below 1, or over 256 threads. `bytes_of`: size of an item in memory; without it,
  /// that of its tensors where T is a Tensor, Dataset, Batch or Padded, else sizeof(T).
  explicit Prefetch(Make make, PrefetchOptions options = {},
                    int64_t count = std::numeric_limits<int64_t>::max(),
                    Bytes bytes_of = detail::held_bytes<T>)
      : ahead_(std::make_unique<detail::Prefetcher>(
            count,
            [make = std::move(make), bytes_of = std::move(bytes_of)](int64_t index, size_t& bytes) {
              std::shared_ptr<T> item;
              if (std::optional<T> made = make(index)) item = std::make_shared<T>(std::move(*made));
              if (item) bytes = bytes_of(*item);
              return item;
            },
            options)) {}

  /// The next item; nothing at the end. Waits until it is made.
  std::optional<T> next() {
    if (!ahead_) throw_invalid("[prefetch] an empty one was used: it was moved from");
    const auto item = std::static_pointer_cast<T>(ahead_->next());
    return item ? std::optional<T>(std::move(*item)) : std::nullopt;
  }

  /// For range-for, once.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using pointer = const T*;
    using reference = const T&;

    explicit Iterator(Prefetch* from) : from_(from), item_(from->next()) {}
    const T& operator*() const { return *item_; }
    const T* operator->() const { return &*item_; }
    Iterator& operator++() {
      item_ = from_->next();
      return *this;
    }
    bool operator==(std::default_sentinel_t) const { return !item_; }

   private:
    Prefetch* from_;
    std::optional<T> item_;
  };
  Iterator begin() & { return Iterator(this); }
  Iterator begin() && = delete;  // name it: its iterators end with it
  std::default_sentinel_t end() const { return {}; }

 private:
  std::unique_ptr<detail::Prefetcher> ahead_;
};

/// The batches of an epoch, gathered in the background: for (const Batch& b : prefetch(loader.epoch(e))).
Prefetch<Batch> prefetch(Epoch epoch, PrefetchOptions options = {});

}  // namespace troupe::datasets
