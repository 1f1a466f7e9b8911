// Frames that wait for room in a socket, written with as few calls and copies as possible.
#pragma once
#include <cstddef>
#include <deque>
#include <vector>

#include "net/message.h"
#include "net/socket/stream/stream.h"

namespace troupe::internal::net {

/// Not thread-safe. Bytes go straight from the storages to the socket; several frames go in one call. Where a
/// device still writes a buffer, the chunk that is next is waited for, and no other one.
class WriteQueue {
 public:
  enum class Outcome { drained, blocked, budget, broken };

  bool empty() const { return frames_.empty(); }
  /// Bytes not yet written.
  size_t bytes() const { return bytes_; }
  /// `head` goes first, then the message's header and buffers.
  void push(std::vector<std::byte> head, Message message = {});
  /// Writes until everything is written, the socket is full, `budget` bytes are written, or the connection is
  /// broken (errno tells). Never raises SIGPIPE. Throws what Buffer::pinned does.
  Outcome write_to(Stream& stream, size_t budget);
  void clear();

 private:
  struct Frame {
    std::vector<std::byte> head;
    Message message;
    size_t part = 0, offset = 0;  // written so far: parts before `part`, and `offset` bytes of it
    size_t parts() const { return 2 + message.buffers.size(); }
    struct Part {
      const std::byte* data;
      size_t size;
    };
    Part at(size_t part) const;
    PinnedBuffer* pinned(size_t part) const { return part < 2 ? nullptr : message.buffers[part - 2].pinned; }
  };
  void written(size_t n);

  std::deque<Frame> frames_;
  size_t bytes_ = 0;
};

}  // namespace troupe::internal::net
