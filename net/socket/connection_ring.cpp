// Shared memory of a connection: how it comes to be, what goes by it, and who looks into the ring.
#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "core/log.h"
#include "net/socket/connection.h"
#include "net/socket/cores.h"
#include "net/socket/relax.h"
#include "net/socket/shared_memory.h"

namespace troupe::net {
namespace {

constexpr size_t kRingMost = size_t{64} << 20;  // of what a peer offers
constexpr size_t kHeapMost = size_t{1} << 40;
constexpr size_t kLend = size_t{64} << 10;  // buffers from here on are copied to where the receiver sees them
constexpr size_t kParts = 8;                // buffers of a message that goes by the ring
constexpr size_t kTurn = 16;                // messages that a caller delivers before it looks at its own
constexpr int kLooksPerTime = 32;
constexpr Duration kShowsUp = std::chrono::microseconds(15);  // whoever was woken, where a core is free

}  // namespace

// ---- sending, under mutex_

// The first frames of a connection, so the socket has room. Where anything is refused the socket does it all.
void SocketConnection::offer_memory() {
  int domain = 0;
  socklen_t length = sizeof domain;
  if (!queue_.empty() || ::getsockopt(fd_.get(), SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0 ||
      domain != AF_UNIX)
    return;
  const auto offer = [&](FrameKind kind, const Fd& memory) {
    return send_with(fd_.get(), encode_prefix({.kind = kind}), memory);
  };
  if (core_->limits().ring_bytes)
    if (auto ring = SharedRing::make(core_->limits().ring_bytes))
      if (offer(FrameKind::ring_offer, ring->fd())) {
        ring->fd().reset();
        out_ = std::move(ring);
      }
  if (core_->limits().heap_bytes)
    if (auto heap = LendingHeap::make(core_->limits().heap_bytes, core_->limits().queue_bytes))
      if (offer(FrameKind::heap_offer, heap->fd())) heap_ = std::move(heap);
}

// Copies the large buffers to where the receiver sees them. Outside of all locks: others send meanwhile.
void SocketConnection::lend(Message& message) {
  LendingHeap* heap = lends_.load(std::memory_order_acquire);
  if (!heap) return;
  for (Buffer& b : message.buffers) {
    if (b.size < kLend || b.size > core_->limits().buffer_bytes || !b.storage->device().is_cpu()) continue;
    const auto place = heap->take(b.size);
    if (!place) continue;  // by the socket
    std::memcpy(place->data, b.data(), b.size);
    b.lent = place->word;
    b.storage = {};
  }
}

// It was not sent.
void SocketConnection::take_back(const Message& message) {
  for (const Buffer& b : message.buffers)
    if (b.lent) heap_->give_back(b.lent);
}

// False: it goes by the socket.
bool SocketConnection::write_ring(const Message& message, size_t size) {
  if (!ring_writer_ || size > out_->memory().capacity / 4 || message.buffers.size() > kParts) return false;
  std::array<std::byte, kPrefixBytes + 8 * kParts> head;
  write_head(head.data(), message, core_->limits(), next_number_);
  std::array<std::span<const std::byte>, kParts + 2> parts;
  size_t n = 0;
  parts[n++] = std::span(head).first(head_bytes(message));
  parts[n++] = std::as_bytes(std::span(message.header));
  for (const Buffer& b : message.buffers)
    if (const auto bytes = b.travelling(); !bytes.empty()) parts[n++] = bytes;
  try {
    if (!ring_writer_->write(std::span(parts).first(n))) return false;
  } catch (const Error& e) {
    const Error why = lost(fmt::format("{} misuses the ring: {}", who(), e.message()));
    core_->delivery.post([self = shared_from_this(), why] { self->finish_outside(why); });
    throw why;
  }
  ++next_number_;
  return true;
}

// ---- reading, under read_mutex_

bool SocketConnection::may_be_offered() const {
  return (core_->limits().ring_bytes && !ring_reader_) || (core_->limits().heap_bytes && !borrowed_);
}

void SocketConnection::take_ring() {
  const Fd fd = std::exchange(passed_, Fd());
  std::string why = "no descriptor came with it";
  if (!in_ && fd) in_ = SharedRing::open(fd, kRingMost, why);
  const bool accepted = in_ && !ring_reader_;
  if (accepted) {
    ring_reader_.emplace(in_->memory());
    has_ring_.store(true, std::memory_order_release);
    if (!std::exchange(listed_, true)) {
      begin_looking();
      core_->looks_at(shared_from_this());
    }
  }
  answer(FrameKind::ring_answer, accepted, why);
}

void SocketConnection::take_heap() {
  const Fd fd = std::exchange(passed_, Fd());
  std::string why = "no descriptor came with it";
  const bool first = !borrowed_;
  if (first && fd) borrowed_ = BorrowedHeap::open(fd, kHeapMost, why);
  const bool accepted = first && borrowed_;
  if (accepted) {
    reader_.borrow_from(*borrowed_);
    ring_frames_.borrow_from(*borrowed_);
  }
  answer(FrameKind::heap_answer, accepted, why);
}

void SocketConnection::answer(FrameKind kind, bool accepted, const std::string& why) {
  if (!accepted)
    log::info(fmt::format("[net] does without the {} that {} offers: {}",
                          kind == FrameKind::ring_answer ? "ring" : "heap", who(), why));
  std::lock_guard lock(mutex_);
  if (state_ != State::open || broken_) return;  // nothing is sent after a goodbye
  const bool first = queue_.empty();
  queue_.push(answer_frame(kind, accepted));
  if (first) flush(kTurn << 10);
}

void SocketConnection::ring_answered(bool accepted) {
  std::lock_guard lock(mutex_);
  if (!out_ || ring_writer_) return;
  if (accepted) {
    ring_writer_.emplace(out_->memory());
    towards_.store(&*ring_writer_, std::memory_order_release);
  } else {
    out_.reset();
  }
}

void SocketConnection::heap_answered(bool accepted) {
  std::lock_guard lock(mutex_);
  if (heap_ && accepted) lends_.store(heap_.get(), std::memory_order_release);
  if (heap_ && !lends_) heap_.reset();
}

// Delivers up to `most` messages; whether there was any.
bool SocketConnection::read_ring(size_t most) {
  if (!ring_reader_ || ring_misused_) return false;
  size_t n = 0;
  try {
    while (n < most) {
      if (!held_) {
        if (ring_reader_->empty()) break;
        auto bytes = ring_reader_->unread();
        const size_t before = bytes.size();
        held_ = ring_frames_.feed(bytes);
        ring_reader_->take(before - bytes.size());
        if (!held_) break;
        if (held_->kind != FrameKind::message)
          throw_invalid("[net] something other than a message in a ring");
      }
      if (held_->number != expected_) break;
      ++expected_;
      ++n;
      ReadFrame frame = std::move(*held_);
      held_.reset();
      if (!deliver(std::move(frame))) break;
    }
  } catch (...) {
    ring_misused_ = true;
    // Not here: this may be a thread of the user.
    core_->delivery.post([self = shared_from_this(), e = current_error()] {
      std::lock_guard reading(self->read_mutex_);
      self->misused(e);
    });
  }
  return n > 0;
}

// ---- who looks

void SocketConnection::begin_looking() {
  lookers_.fetch_add(1);
  ring_reader_->wake_up();
}

// The last one lets the peer know that somebody has to be woken, and looks once more.
void SocketConnection::end_looking() {
  if (lookers_.fetch_sub(1) != 1) return;
  ring_reader_->sleep();
  std::unique_lock reading(read_mutex_);
  if (ring_misused_ || held_ || ring_reader_->empty()) return;
  reading.unlock();
  core_->delivery.post([self = shared_from_this()] { self->on_readable(); });
}

// Two that look at each other's rings from one core only keep each other from running. They come to be there
// because the kernel likes to wake a thread where its waker is, and does not search for an idle core while
// both have been busy (looking) of late. Whoever sees it moves; so does one that has woken the other, which
// slept here, and sees no sign of it from `since` on: it may be waiting for this very core.
bool SocketConnection::keep_apart(TimePoint now, TimePoint since) {
  const uint32_t core = this_core();
  ring_reader_->look_from(core);
  const RingWriter* towards = towards_.load(std::memory_order_acquire);
  if (!towards || !core) return false;
  const uint32_t other = towards->reader_core();
  const bool away = other & RingControl::kAway;
  if (!away) rang_.store(false, std::memory_order_relaxed);
  const bool missing = away && now - since > kShowsUp && rang_.load(std::memory_order_relaxed);
  if ((away && !missing) || (other & ~RingControl::kAway) != core || !core_->may_move(now)) return false;
  leave_core();
  return true;
}

bool SocketConnection::look() {
  std::unique_lock reading(read_mutex_, std::try_to_lock);
  return reading && read_ring(kTurn);
}

void SocketConnection::look_no_more() {
  listed_ = false;
  end_looking();
}

void SocketConnection::deliver_until(const std::atomic<bool>& done, TimePoint end) {
  TimePoint now = core_->now(), last = now;
  const TimePoint start = now;
  if (!has_ring_.load(std::memory_order_acquire) || !core_->may_look(now) || waited_on_.exchange(true))
    return;
  core_->waiting_callers.fetch_add(1);
  begin_looking();
  for (int looks = 1; !done.load(std::memory_order_acquire); ++looks) {
    const bool came = look();
    if (!came) relax();
    if (!came && looks % kLooksPerTime != 0) continue;
    const TimePoint before = std::exchange(now, core_->now());
    const bool moved = keep_apart(now, start);
    if (came) last = now;
    if (now >= end || now - last >= core_->limits().look) break;
    if (!came && core_->was_away(before, now)) break;  // what came may have taken its time
    if (moved) now = core_->now();
  }
  core_->waiting_callers.fetch_sub(1);
  end_looking();
  waited_on_.store(false);
}

}  // namespace troupe::net
