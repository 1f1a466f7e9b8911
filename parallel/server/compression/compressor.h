// What one trainer's messages to its servers look like, both ways: compressed while that pays.
#pragma once
#include <mutex>
#include <optional>

#include "core/base/clock.h"
#include "parallel/server/compression/compression_tuner.h"
#include "parallel/server/compression/packed.h"

namespace troupe::parallel {

/// Packs what a trainer pushes, unpacks what it pulls, and learns from both whether it pays. Thread-safe, but
/// for the residuals, which belong to the caller of pack().
class Compressor {
 public:
  Compressor(const Clock& clock, const Compression& pull, const Compression& push)
      : clock_(clock), pull_(pull), push_(push), pull_pays_(pull.always), push_pays_(push.always) {}
  /// Whether there is anything to do at all.
  bool on() const { return pull_.on() || push_.on(); }

  /// One question to all servers, and what has been done for it.
  struct Message {
    Compression push;                 ///< how it travels; none where that does not pay
    std::optional<Compression> pull;  ///< the same, of a question for values; empty: no compression at all
    TimePoint start{};
    int64_t whole = 0, sent = 0;  ///< bytes that are pushed
    Duration packing{0};
    int64_t pulled_whole = 0, received = 0;  ///< bytes that are pulled
    Duration unpacking{0};
  };
  Message begin(bool pulls, bool pushes);
  /// A part of what is pushed. `residual`: of this part, kept by the caller from one push to the next.
  Packed pack(Message& message, const Tensors& tensors, Tensors* residual);
  /// A part of what was pulled.
  Tensors unpack(Message& message, Packed packed, const std::vector<Whole>& wholes);
  /// All servers have answered, having spent that: the sum of the times for packing, the longest of `held`.
  void end(const Message& message, const Spent& spent);

 private:
  const Clock& clock_;
  const Compression pull_, push_;
  std::mutex mutex_;
  WireTimes wire_;
  CompressionTuner pull_pays_, push_pays_;
};

}  // namespace troupe::parallel
