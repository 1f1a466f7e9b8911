// The reading half of a connection.
#include <fmt/format.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>

#include "core/base/log.h"
#include "core/base/out_of_memory.h"
#include "net/socket/connection/socket_connection.h"
#include "net/socket/shared/shared_memory.h"

namespace troupe::internal::net {
namespace {

constexpr size_t kScratch = 64 << 10;
constexpr size_t kReadBudget = 1 << 20;  // bytes of one connection before the next one has its turn
constexpr size_t kDirect = 16;           // storages of one read
constexpr size_t kRingTurn = 64;         // messages of the ring, likewise

}  // namespace

void SocketConnection::on_readable() {
  std::lock_guard reading(read_mutex_);
  poll_here();
  read_socket();
  if (read_ring(kRingTurn)) core_->something_came();
}

// What TLS has read ahead is not in the socket any more, so nothing else would tell.
void SocketConnection::read_soon() {
  core_->delivery.post([self = shared_from_this()] { self->on_readable(); });
}

void SocketConnection::on_bell() {
  std::lock_guard reading(read_mutex_);
  poll_here();
  if (read_ring(kRingTurn)) core_->something_came();
}

// True if there may be more to read.
bool SocketConnection::read_socket() {
  // Shared by all connections of the thread: a reader keeps nothing in it.
  static thread_local std::array<std::byte, kScratch> scratch;
  for (size_t done = 0; done < kReadBudget && !finishing_ && !ended_ && !lanes_.awaited;) {
    iovec parts[kDirect + 1];
    size_t n = 0, direct = 0;
    try {
      n = reader_.direct({parts, kDirect});
    } catch (const std::exception&) {
      finish(lost(fmt::format("{} sent a message that cannot be held: {}", who(), current_error().what())));
      return false;
    }
    for (size_t i = 0; i < n; ++i) direct += parts[i].iov_len;
    parts[n] = {scratch.data(), scratch.size()};
    // Without mutex_: who closes the descriptor reads first.
    alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> passed;
    msghdr m{};
    m.msg_iov = parts;
    m.msg_iovlen = n + 1;
    if (may_be_offered()) m.msg_control = passed.data(), m.msg_controllen = passed.size();
    const ssize_t got = stream_.receive(m);
    const int error = errno;
    if (got >= 0 && m.msg_controllen)
      if (Passed fds = passed_with(m); fds.first) passed_ = std::move(fds);
    if (got < 0 && error == EINTR) continue;
    if (got < 0 && (error == EAGAIN || error == EWOULDBLOCK)) return watch_lane(), false;
    if (got <= 0) return on_read_error(got < 0 ? error : 0), false;
    last_heard_.store(core_->now().time_since_epoch().count());
    const size_t bytes = static_cast<size_t>(got), placed = std::min(bytes, direct);
    std::optional<ReadFrame> frame;
    try {
      frame = reader_.advance(placed);
    } catch (const std::exception&) {
      finish(lost(fmt::format("{} sent a message that cannot be held: {}", who(), current_error().what())));
      return false;
    }
    if (frame && !arrived(std::move(*frame))) return false;
    if (!take({scratch.data(), bytes - placed})) return false;
    if (stream_.emptied(bytes, direct + kScratch)) return false;
    done += bytes;
  }
  if (stream_.reads_ahead() && !finishing_ && !ended_ && !lanes_.awaited) read_soon();
  return !lanes_.awaited;
}

// False once the connection is closed.
bool SocketConnection::take(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    std::optional<ReadFrame> frame;
    try {
      frame = reader_.feed(bytes);
    } catch (...) {
      return misused(current_error());
    }
    const bool last = frame && frame->kind == FrameKind::lanes;
    if (frame && !arrived(std::move(*frame))) return false;
    if (last && !bytes.empty())
      return misused(Error(ErrorKind::invalid, "[net] bytes behind the last frame of a socket"));
  }
  return true;
}

// By the socket. What was sent before it and is not here yet came by the ring.
bool SocketConnection::arrived(ReadFrame&& frame) {
  switch (frame.kind) {
    case FrameKind::heartbeat:
      return took_word(frame);
    case FrameKind::ring_offer:
      return take_ring(), true;
    case FrameKind::arena_offer:
      return take_arena(), true;
    case FrameKind::ring_answer:
      return ring_answered(frame.accepted), true;
    case FrameKind::arena_answer:
      return arena_answered(frame.accepted), true;
    case FrameKind::lanes:
      return lanes_follow(frame.lanes);
    case FrameKind::message:
    case FrameKind::goodbye:
      break;
  }
  core_->something_came();
  if (comeback_ && ahead(frame.number, expected_) < 0) return true;  // it came by an earlier socket
  while (frame.number != expected_)
    if (!read_ring(1)) break;
  if (frame.number != expected_)
    return misused(Error(ErrorKind::invalid, fmt::format("[net] message number {} came in place of {}",
                                                         frame.number, expected_)));
  ++expected_;
  if (!comeback_) return deliver(std::move(frame)) && (read_ring(kRingTurn), true);
  received_.store(expected_, std::memory_order_relaxed);
  const size_t bytes = kPrefixBytes + 8 * frame.message.header.size() + frame.message.buffer_bytes();
  if (!deliver(std::move(frame))) return false;
  acknowledge_soon(bytes);
  return true;
}

bool SocketConnection::misused(const Error& e) {
  core_->warn(fmt::format("[net] closes the connection to {}: {}", who(), e.what()));
  finish(lost(fmt::format("{} sent a bad frame: {}", who(), e.what())));
  return false;
}

void SocketConnection::altered(const std::string& where) {
  const auto text = fmt::format("the connection to {} broke{}: somebody on the way has altered it (TLS: {})",
                                who(), where, stream_.reader()->text());
  core_->warn("[net] " + text);
  finish(lost(text));
}

bool SocketConnection::deliver(ReadFrame&& frame) {
  State state;
  {
    std::lock_guard lock(mutex_);
    state = state_;
  }
  if (state == State::closed) return false;
  if (frame.kind == FrameKind::goodbye) {
    if (state == State::closing) return true;  // both close at once: the end of the stream follows
    std::replace_if(
        frame.reason.begin(), frame.reason.end(),
        [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
    finish(lost(fmt::format("{} closed the connection: {}", who(), frame.reason)));
    return false;
  }
  if (state == State::closing) return true;  // after close() nothing arrives
  handled_.store(expected_, std::memory_order_relaxed);
  try {
    core_->events().on_message(*this, std::move(frame.message));
  } catch (const std::bad_alloc&) {
    end_without_memory();
  } catch (...) {
    log::error(
        fmt::format("[net] the handler of a message from {} threw: {}", who(), current_error().what()));
  }
  handled_.store(0, std::memory_order_relaxed);
  return true;
}

// The peer is gone, but what it sent before, perhaps with its reason, is still to be read.
void SocketConnection::after_failed_write(int error, uint32_t socket) {
  {
    std::lock_guard lock(mutex_);
    if (state_ == State::closed) return;
  }
  std::lock_guard reading(read_mutex_);
  if (socket != socket_ || ended_) return;  // of an earlier socket
  if (announced_ && read_socket())
    core_->delivery.post(
        [self = shared_from_this(), error, socket] { self->after_failed_write(error, socket); });
  else
    on_read_error(error);
}

// 0: end of the stream. What was sent before may lie in the ring.
void SocketConnection::on_read_error(int error) {
  if (ring_reader_) read_ring(in_->memory().capacity / kPrefixBytes);
  std::optional<Error> reason;
  {
    std::lock_guard lock(mutex_);
    if (state_ == State::closed || ended_) return;
    if (state_ == State::closing) reason = reason_;
  }
  if (reason) return finish(*reason);
  const std::string where = reader_.in_the_middle() ? " in the middle of a message" : "";
  if (error == 0)
    ended(lost(fmt::format("{} closed the connection{}", who(), where)));
  else if (error == ECONNRESET || error == EPIPE)
    ended(lost(fmt::format("connection reset by {}{}", who(), where)));
  else if (error == EBADMSG && stream_.reader())
    altered(where);
  else
    ended(lost(fmt::format("the connection to {} broke{}: {}", who(), where, errno_text(error))));
}

}  // namespace troupe::internal::net
