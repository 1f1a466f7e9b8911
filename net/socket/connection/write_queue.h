// Frames that wait for room in a socket, written with as few calls and copies as possible; of a link that
// outlives its connections also those that were written and are not acknowledged.
#pragma once
#include <cstddef>
#include <deque>
#include <vector>

#include "net/message.h"
#include "net/protocol/link.h"
#include "net/socket/stream/stream.h"

namespace troupe::internal::net {

/// Not thread-safe. Bytes go straight from the storages to the socket; several frames go in one call. Where a
/// device still writes a buffer, the chunk that is next is waited for, and no other one.
class WriteQueue {
 public:
  enum class Outcome { drained, blocked, budget, broken, unacknowledged };
  struct Frame {
    std::vector<std::byte> head;
    Message message;
    bool numbered = false;
    bool last = false;            // on the first socket of its stream: then come the lanes
    size_t part = 0, offset = 0;  // written so far: parts before `part`, and `offset` bytes of it
    size_t size = 0;
    size_t parts() const { return 2 + message.buffers.size(); }
    struct Part {
      const std::byte* data;
      size_t size;
    };
    Part at(size_t part) const;
    PinnedBuffer* pinned(size_t part) const { return part < 2 ? nullptr : message.buffers[part - 2].pinned; }
  };

  /// Frames with numbers stay until they are acknowledged; while so many bytes are not, none more is begun.
  void keep_up_to(size_t bytes) { most_kept_ = bytes; }
  bool empty() const { return frames_.waiting().empty(); }
  /// Bytes not yet written.
  size_t bytes() const { return bytes_; }
  /// `head` goes first, then the message's header and buffers. A message or a goodbye is numbered.
  void push(std::vector<std::byte> head, bool numbered = false, Message message = {});
  /// Behind this frame the stream writes by its lanes.
  void push_last(std::vector<std::byte> head);
  /// A frame without a number, after Outcome::unacknowledged: before what waits for that.
  void push_ahead(std::vector<std::byte> head);
  /// Window's; they free nothing, which is for whoever gets `over`.
  bool acknowledge(uint32_t received, std::vector<Frame>& over);
  bool again(uint32_t received, std::vector<Frame>& over);
  /// Writes until everything is written, the socket is full, `budget` bytes are written, too much is not
  /// acknowledged, or the connection is broken (errno tells). Never raises SIGPIPE. Throws what
  /// Buffer::pinned does.
  Outcome write_to(Stream& stream, size_t budget);
  void clear();

 private:
  void written(size_t n, Stream& stream);

  Window<Frame> frames_;
  size_t bytes_ = 0, kept_ = 0;  // waiting, and written but not acknowledged
  size_t most_kept_ = 0;         // 0: none is kept
};

}  // namespace troupe::internal::net
