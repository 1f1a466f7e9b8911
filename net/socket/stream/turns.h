// Several sockets that carry one stream of bytes: so many go by each in turn, so both ends know by which one
// the next byte goes.
#pragma once
#include <cstddef>

namespace troupe::internal::net {

/// One direction of such a stream. Without ways there is nothing to take turns.
class Turns {
 public:
  static constexpr size_t kTurn = 256 << 10;  // bytes

  explicit Turns(size_t ways = 0) : ways_(ways) {}
  explicit operator bool() const { return ways_ != 0; }
  size_t way() const { return way_; }
  /// Bytes that may go by it before the next one has its turn.
  size_t left() const { return kTurn - passed_; }
  void pass(size_t bytes) {
    passed_ += bytes;
    if (passed_ < kTurn) return;
    passed_ = 0;
    way_ = (way_ + 1) % ways_;
  }

 private:
  size_t ways_, way_ = 0, passed_ = 0;
};

}  // namespace troupe::internal::net
