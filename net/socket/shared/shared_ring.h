// Memory for a ring that two processes of one host share: a descriptor that one makes and the other is given.
#pragma once
#include <memory>
#include <string>

#include "net/socket/loop/sockets.h"
#include "net/socket/shared/ring.h"

namespace troupe::internal::net {

/// A mapped ring. The memory lives as long as either side maps it.
class SharedRing {
 public:
  /// New, all zero, with room for `capacity` bytes (made a power of two of at least a page). Null where the
  /// system does not give it.
  static std::unique_ptr<SharedRing> make(size_t capacity);
  /// Maps what another process made. Null, with the reason in `why`, if it is no such memory: it has another
  /// form, more than `most` bytes, or could be made smaller later, which would kill this process when it
  /// reads there.
  static std::unique_ptr<SharedRing> open(const Descriptor& fd, size_t most, std::string& why);
  ~SharedRing();
  SharedRing(const SharedRing&) = delete;

  const RingMemory& memory() const { return memory_; }
  /// What open() takes, until it is let go of; of a ring that was made here.
  Descriptor& fd() { return fd_; }

 private:
  SharedRing() = default;
  bool map(int fd, size_t capacity);
  RingMemory memory_;
  Descriptor fd_;
};

}  // namespace troupe::internal::net
