// Reading: where a feed gets its chunks from.
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "core/async/future.h"
#include "data/datasets/prefetch.h"
#include "data/streams/chunk.h"

namespace troupe::datasets::detail {

/// The chunks behind a place, in their order, read ahead. Of one thread.
class Reading {
 public:
  virtual ~Reading() = default;
  /// Goes there; what was read ahead goes.
  virtual void begin(const FeedPlace& from) = 0;
  /// The next chunk; nothing behind the last epoch. Waits for it. Throws what reading has thrown, again at
  /// each call.
  virtual std::optional<Chunk> next() = 0;
  /// Nothing if next() need not wait, and always if it waits for threads of this process; else what is ready
  /// once that is to be asked again.
  virtual std::optional<Future<void>> ready() = 0;
};

using MakeReading = std::function<std::unique_ptr<Reading>(std::shared_ptr<const ChunkReader> reader,
                                                           const PrefetchOptions& ahead)>;

/// Threads of this process read.
std::unique_ptr<Reading> read_here(std::shared_ptr<const ChunkReader> reader, const PrefetchOptions& ahead);

}  // namespace troupe::datasets::detail
