// StreamUses: which streams of a device have work with some of its memory.
#pragma once
#include <cstdint>
#include <mutex>

#include "core/base/mutex.h"
#include "core/memory/backend.h"
#include "core/memory/ref.h"

namespace troupe {

/// Keeps the work of several streams with the same bytes in order: what reads them waits for what wrote them,
/// what writes or frees them for everything before, on the device and without a wait on the host. Each
/// function is for the stream that the calling thread works on; it is to be called before that work is asked
/// for. Thread-safe; who writes is alone with the bytes, as with memory of the host.
class StreamUses : public RefCounted {
 public:
  /// Of bytes that were allocated on `home`.
  StreamUses(Device device, StreamId home) : device_(device), home_(home) {}

  void read();
  void write();
  /// The bytes go to another actor: what waits for them need not wait for later work of this stream.
  void leave();
  /// Of the last one who has the bytes: the stream in whose order they may be freed.
  StreamId free();

 private:
  void wait_for_all(StreamId waiting);

  internal::Mutex mutex_;
  const Device device_;
  StreamId home_;         // the only one that has written
  uint64_t mark_ = 0;     // of home_'s work; 0: it may have worked with the bytes since
  uint32_t readers_ = 0;  // other streams that have waited for home_
  static_assert(kDeviceStreams <= 32);
};

}  // namespace troupe
