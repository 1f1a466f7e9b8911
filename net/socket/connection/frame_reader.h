// Turns a stream of bytes into frames; large payloads can be read straight into their final storages.
#pragma once
#include <sys/uio.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "net/protocol/frame.h"
#include "net/socket/shared/imported_arena.h"

namespace troupe::internal::net {

/// One frame as it arrived.
struct ReadFrame {
  FrameKind kind = FrameKind::heartbeat;
  Message message;
  std::string reason;     ///< of a goodbye
  uint32_t number = 0;    ///< of a message or goodbye; what a heartbeat says
  uint16_t port = 0;      ///< of a heartbeat
  bool accepted = false;  ///< of an answer
  size_t lanes = 0;
};

/// Not thread-safe; no sockets inside. Holds one message at a time. Lengths are checked before anything is
/// allocated, and buffers are allocated when their bytes are about to arrive. Errors (`invalid`,
/// `unimplemented`, std::bad_alloc) are final.
class FrameReader {
 public:
  explicit FrameReader(const Limits& limits) : limits_(limits) {}
  /// Lent buffers are there from now on; before, they are errors. `arena` outlives the reader.
  void import_from(const ImportedArena& arena) { arena_ = &arena; }

  /// Takes bytes from the front of `bytes`, up to the end of a frame, which is then returned.
  std::optional<ReadFrame> feed(std::span<const std::byte>& bytes);

  /// Where the next bytes of the payload belong, if the payload is what comes next; returns how many of `out`
  /// are set.
  size_t direct(std::span<iovec> out);
  /// The first `n` bytes of what direct() gave have been written. Returns the frame if that was all of it.
  std::optional<ReadFrame> advance(size_t n);

  /// Whether part of a frame has arrived.
  bool in_the_middle() const { return step_ != Step::prefix || filled_ != 0; }

 private:
  enum class Step { prefix, sizes, header, payload, reason };
  std::optional<ReadFrame> next_step();
  std::span<std::byte> target();
  std::optional<ReadFrame> complete();
  void skip_empty();
  void allocate(size_t index);
  void adopt();
  void forward();

  Limits limits_;
  Step step_ = Step::prefix;
  size_t filled_ = 0;  // of the current target
  std::array<std::byte, kPrefixBytes> prefix_bytes_{};
  FramePrefix prefix_;
  std::vector<uint64_t> size_words_;
  std::vector<BufferSize> sizes_;
  size_t current_ = 0;  // buffer being filled
  uint64_t place_ = 0;  // of an exported one
  const ImportedArena* arena_ = nullptr;
  ReadFrame frame_;
};

}  // namespace troupe::internal::net
