// PinnedBuffer: bytes of a device on their way through the host.
#pragma once
#include <algorithm>
#include <cstddef>

#include "core/memory/storage.h"

namespace troupe {

/// Memory of the host that a device reads and writes by itself (pinned), and copies between the two that run
/// while the host goes on, chunk by chunk: one way, once. Its end waits for nothing: the memory is used again
/// after the copies. Not thread-safe.
class PinnedBuffer {
 public:
  /// Long beside what asking for a copy costs (some microseconds), short beside what a connection takes for
  /// as many bytes: the first chunk leaves soon, and the device stays ahead of the writer.
  static constexpr size_t kChunk = size_t{1} << 20;

  PinnedBuffer(std::byte* data, size_t size) : data_(data), size_(size) {}
  virtual ~PinnedBuffer() = default;
  PinnedBuffer(const PinnedBuffer&) = delete;

  /// 64-byte aligned.
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

  /// Asks for all bytes, which begin at `from` on the device. Copies are on the calling thread's stream.
  virtual void fetch(const std::byte* from) = 0;
  /// How many bytes of those, from the front on, are there: at least `least`, for which it waits. Throws
  /// `failed` if the device has failed.
  virtual size_t arrived(size_t least) = 0;

  /// Where forward() copies to: as many bytes of the device.
  Ref<Storage> there;
  /// The first `filled` bytes of data() are written: asks for the copies of all chunks that are whole by now.
  virtual void forward(size_t filled) = 0;

 private:
  std::byte* data_;
  size_t size_;
};

}  // namespace troupe
