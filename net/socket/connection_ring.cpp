// The ring of a connection: how it comes to be, what goes by it, and who looks into it.
#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "core/log.h"
#include "net/socket/connection.h"
#include "net/socket/cores.h"
#include "net/socket/relax.h"

namespace troupe::net {
namespace {

constexpr size_t kRingMost = size_t{64} << 20;  // of what a peer offers
constexpr size_t kParts = 8;                    // buffers of a message that goes by the ring
constexpr size_t kTurn = 16;                    // messages that a caller delivers before it looks at its own
constexpr int kLooksPerTime = 32;
constexpr Duration kShowsUp = std::chrono::microseconds(15);  // whoever was woken, where a core is free

}  // namespace

// ---- sending, under mutex_

// The first frame of a connection, so the socket has room. Where anything is refused there is no ring.
void SocketConnection::offer_ring() {
  int domain = 0;
  socklen_t length = sizeof domain;
  if (!core_->limits().ring_bytes || !queue_.empty() ||
      ::getsockopt(fd_.get(), SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0 || domain != AF_UNIX)
    return;
  auto ring = SharedRing::make(core_->limits().ring_bytes);
  if (!ring) return;
  auto offer = encode_prefix({.kind = FrameKind::ring_offer});
  iovec part{offer.data(), offer.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> passed{};
  msghdr m{};
  m.msg_iov = &part;
  m.msg_iovlen = 1;
  m.msg_control = passed.data();
  m.msg_controllen = passed.size();
  cmsghdr* c = CMSG_FIRSTHDR(&m);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = ring->fd().get();
  std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
  if (::sendmsg(fd_.get(), &m, MSG_NOSIGNAL | MSG_DONTWAIT) != static_cast<ssize_t>(offer.size())) return;
  ring->fd().reset();
  out_ = std::move(ring);
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
    if (b.size) parts[n++] = {b.data(), b.size};
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

void SocketConnection::take_offer() {
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
  } else {
    log::info(fmt::format("[net] does without the ring that {} offers: {}", who(), why));
  }
  std::lock_guard lock(mutex_);
  if (state_ == State::closed || broken_) return;
  const bool first = queue_.empty();
  queue_.push(ring_answer_frame(accepted));
  if (first) flush(kTurn << 10);
}

void SocketConnection::take_answer(bool accepted) {
  std::lock_guard lock(mutex_);
  if (!out_ || ring_writer_) return;
  if (accepted) {
    ring_writer_.emplace(out_->memory());
    towards_.store(&*ring_writer_, std::memory_order_release);
  } else {
    out_.reset();
  }
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
// both have been busy (looking) of late. Whoever sees it moves; so does one that has woken the other and sees
// no sign of it from `since` on: it may be waiting for this very core.
void SocketConnection::keep_apart(TimePoint now, TimePoint since) {
  const uint32_t core = this_core();
  ring_reader_->look_from(core);
  const RingWriter* towards = towards_.load(std::memory_order_acquire);
  const uint32_t other = towards ? towards->reader_core() : 0;
  if (other) rang_.store(false, std::memory_order_relaxed);
  const bool missing = now - since > kShowsUp && rang_.load(std::memory_order_relaxed);
  if (core && (other == core || missing) && core_->may_move(now)) leave_core();
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
    keep_apart(now, start);
    if (came) last = now;
    if (now >= end || now - last >= core_->limits().look) break;
    if (!came && core_->was_away(before, now)) break;  // what came may have taken its time
  }
  core_->waiting_callers.fetch_sub(1);
  end_looking();
  waited_on_.store(false);
}

}  // namespace troupe::net
