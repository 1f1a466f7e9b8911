#include "net/socket/shared/ring.h"

#include <fmt/format.h>

#include <cstring>

#include "core/base/error.h"

namespace troupe::internal::net {

bool RingWriter::write(std::span<const std::span<const std::byte>> parts) {
  size_t size = 0;
  for (const auto& p : parts) size += p.size();
  const size_t capacity = memory_.capacity;
  if (size > capacity - (tail_ - head_)) {
    const uint64_t head = memory_.control->head.load(std::memory_order_acquire);
    if (tail_ - head > capacity)
      throw_invalid(fmt::format("[net] the reader of a ring says that it has read {} bytes of {} written",
                                head, tail_));
    head_ = head;
    if (size > capacity - (tail_ - head_)) return false;
  }
  std::byte* to = memory_.data + (tail_ & (capacity - 1));
  for (const auto& p : parts) {
    if (!p.empty()) std::memcpy(to, p.data(), p.size());
    to += p.size();
  }
  tail_ += size;
  memory_.control->tail.store(tail_);
  return true;
}

RingState RingWriter::wake() {
  auto& reader = memory_.control->reader;
  constexpr auto kPolls = static_cast<uint32_t>(RingState::polls);
  const uint32_t was = reader.load() == kPolls ? kPolls : reader.exchange(kPolls);
  // Whatever else the reader may have written there means that it does not poll.
  return was == kPolls                                      ? RingState::polls
         : was == static_cast<uint32_t>(RingState::on_word) ? RingState::on_word
                                                            : RingState::for_bell;
}

std::span<const std::byte> RingReader::unread() const {
  const uint64_t tail = memory_.control->tail.load();
  if (tail - head_ > memory_.capacity)
    throw_invalid(fmt::format("[net] the writer of a ring of {} bytes says that {} wait to be read",
                              memory_.capacity, tail - head_));
  return {memory_.data + (head_ & (memory_.capacity - 1)), static_cast<size_t>(tail - head_)};
}

void RingReader::take(size_t n) {
  head_ += n;
  memory_.control->head.store(head_, std::memory_order_release);
}

}  // namespace troupe::internal::net
