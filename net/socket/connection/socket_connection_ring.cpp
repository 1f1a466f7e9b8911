// Shared memory of a connection: how it comes to be, and what goes by it.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>

#include "core/base/log.h"
#include "core/memory/arena.h"
#include "core/memory/cpu_allocator.h"
#include "core/memory/streaming_copy.h"
#include "net/socket/connection/socket_connection.h"
#include "net/socket/shared/shared_memory.h"

namespace troupe::internal::net {
namespace {

constexpr size_t kRingMost = size_t{64} << 20;  // of what a peer offers
constexpr size_t kArenaMost = size_t{1} << 40;
constexpr size_t kAnswer = 16 << 10;  // bytes that are written at once with an answer
constexpr size_t kParts = 8;          // buffers of a message that goes by the ring

}  // namespace

// ---- sending, under mutex_

// The first frames of a connection, so the socket has room. Where anything is refused the socket does it all.
void SocketConnection::offer_memory() {
  if (!queue_.empty() || !same_host_) return;
  if (!core_->limits().arena_bytes) why_no_loan_ = "shared memory is switched off (TROUPE_SHARED_MEMORY)";
  const auto offer = [&](FrameKind kind, const Descriptor& memory, const Descriptor& bell) {
    return send_with(stream_.fd(), encode_prefix({.kind = kind}), memory, bell);
  };
  if (core_->limits().ring_bytes) {
    auto ring = SharedRing::make(core_->limits().ring_bytes);
    Descriptor bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (ring && bell && offer(FrameKind::ring_offer, ring->fd(), bell)) {
      ring->fd().reset();
      out_ = std::move(ring);
      bell_out_ = std::move(bell);
    }
  }
  if (core_->limits().arena_bytes) offer_arena();
}

void SocketConnection::offer_arena() {
  std::string why;
  std::shared_ptr<ExportedBlocks> exported;
  if (open_cpu_arena(core_->limits().arena_bytes, why))
    exported = ExportedBlocks::create(core_->limits().queue_bytes, why);
  Descriptor arena;
  if (exported) arena = Descriptor(::fcntl(Arena::of_process()->descriptor(), F_DUPFD_CLOEXEC, 0));
  if (exported && !arena) why = errno_text(errno);
  if (!arena) {
    why_no_loan_ = "the system gives no shared memory: " + why;
    static std::once_flag once;
    std::call_once(once, [&] {
      log::info(
          "[net] large tensors go to other processes of this host by sockets, since there is no shared "
          "memory: " +
          why);
    });
  } else if (send_with(stream_.fd(), encode_prefix({.kind = FrameKind::arena_offer}), arena,
                       exported->table(), exported->lease())) {
    exported->lease().reset();  // the receiver's alone
    exported_ = std::move(exported);
  }
  if (exported) exported->retire();
}

// While a device still writes the rest of them, if they are pinned.
static void copy_arriving(std::byte* to, const Buffer& b) {
  if (!b.pinned) return copy_large(to, b.data(), b.size);
  for (size_t at = 0; at < b.size;) {
    const size_t end = b.pinned->arrived(at + 1);
    copy_large(to + at, b.data() + at, end - at);
    at = end;
  }
}

// The same bytes in a block that can be lent. Nothing: there is no memory for it.
static std::optional<Buffer> copied_for_export(const Buffer& b) {
  Buffer copy{.size = b.size};
  try {
    copy.storage = Storage::allocate(b.size);
  } catch (const std::bad_alloc&) {
  }
  if (copy.storage && ExportedBlocks::lies_well(copy)) {
    copy_arriving(copy.data(), b);
    return copy;
  }
  static std::once_flag once;
  std::call_once(once, [&] {
    log::info(
        fmt::format("[net] a tensor of {} bytes goes to another process of this host by a socket, since "
                    "shared memory is full",
                    b.size));
  });
  return {};
}

// Lends the large buffers; those that lie elsewhere are copied first. Outside of all locks: others send
// meanwhile. What cannot be lent goes by the socket.
void SocketConnection::export_buffers(Message& message) {
  ExportedBlocks* exports = exports_.load(std::memory_order_acquire);
  if (!exports) return;
  for (Buffer& b : message.buffers) {
    if (b.size < Arena::kSmallest || b.size > std::min(Arena::kLargest, core_->limits().buffer_bytes) ||
        !b.storage->device().is_cpu() || !exports->has_room(b.size))
      continue;
    std::optional<Buffer> there = b;
    if (!ExportedBlocks::lies_well(b)) there = copied_for_export(b);
    const auto place = there ? exports->lend(*there) : std::nullopt;
    if (!place) continue;
    b.exported = *place;
    b.storage = {};
    b.pinned = nullptr;
  }
}

// It was not sent.
void SocketConnection::take_back(const Message& message) {
  for (const Buffer& b : message.buffers)
    if (b.exported) exported_->take_back(b.exported);
}

// False: it goes by the socket.
bool SocketConnection::write_ring(const Message& message, size_t size) {
  if (!ring_writer_ || size > largest_in_ring() || message.buffers.size() > kParts) return false;
  std::array<std::byte, kPrefixBytes + 8 * kParts> head;
  write_head(head.data(), message, core_->limits(), next_number_);
  std::array<std::span<const std::byte>, kParts + 2> parts;
  size_t n = 0;
  parts[n++] = std::span(head).first(head_bytes(message));
  parts[n++] = std::as_bytes(std::span(message.header));
  for (const Buffer& b : message.buffers) {
    if (b.pinned) b.pinned->arrived(b.size);
    if (const auto bytes = b.travelling(); !bytes.empty()) parts[n++] = bytes;
  }
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

// Somebody who slept when the message was written.
void SocketConnection::wake_reader() {
  const RingState was = ring_writer_->wake();
  if (was == RingState::polls) return;
  rang_.store(true, std::memory_order_relaxed);
  if (was == RingState::on_word) return wake_who_waits_for(ring_writer_->word());
  const uint64_t once = 1;
  [[maybe_unused]] const ssize_t n = ::write(bell_out_.get(), &once, sizeof once);  // full: it rings already
}

// ---- reading, under read_mutex_

bool SocketConnection::may_be_offered() const {
  return (core_->limits().ring_bytes && !ring_reader_) || (core_->limits().arena_bytes && !imported_);
}

void SocketConnection::take_ring() {
  Passed fds = std::exchange(passed_, {});
  std::string why = "no two descriptors came with it";
  std::unique_ptr<SharedRing> ring;
  if (!ring_reader_ && fds.second) ring = SharedRing::open(fds.first, kRingMost, why);
  if (ring && !register_doorbell(std::move(fds.second), why)) ring.reset();
  const bool accepted = ring != nullptr;
  if (accepted) {
    in_ = std::move(ring);
    ring_reader_.emplace(in_->memory());
    has_ring_.store(true, std::memory_order_release);
    poll_here();
  }
  answer(FrameKind::ring_answer, accepted, why);
}

// Each ring wakes the delivery thread once; nothing is ever read from the bell.
bool SocketConnection::register_doorbell(Descriptor bell, std::string& why) {
  std::lock_guard lock(mutex_);
  if (state_ == State::closed) return why = "the connection is closed", false;
  try {
    bell_watch_ = core_->delivery.watch(bell.get(), EPOLLIN | EPOLLET,
                                        [self = shared_from_this()](uint32_t) { self->on_bell(); });
  } catch (const Error& e) {
    return why = e.message(), false;
  }
  bell_in_ = std::move(bell);
  return true;
}

void SocketConnection::take_arena() {
  Passed fds = std::exchange(passed_, {});
  std::string why = "no three descriptors came with it";
  const bool first = !imported_;
  if (first && fds.third)
    imported_ = ImportedArena::open(fds.first, fds.second, std::move(fds.third), kArenaMost, why);
  const bool accepted = first && imported_;
  if (accepted) {
    reader_.import_from(*imported_);
    ring_frames_.import_from(*imported_);
  }
  answer(FrameKind::arena_answer, accepted, why);
}

void SocketConnection::answer(FrameKind kind, bool accepted, const std::string& why) {
  if (!accepted)
    log::info(fmt::format("[net] does without the {} that {} offers: {}",
                          kind == FrameKind::ring_answer ? "ring" : "shared memory", who(), why));
  std::lock_guard lock(mutex_);
  if (state_ != State::open || broken_) return;  // nothing is sent after a goodbye
  const bool first = queue_.empty();
  queue_.push(answer_frame(kind, accepted));
  if (first) flush(kAnswer);
}

void SocketConnection::ring_answered(bool accepted) {
  std::lock_guard lock(mutex_);
  if (!out_ || ring_writer_) return;
  if (accepted) {
    ring_writer_.emplace(out_->memory());
    towards_.store(&*ring_writer_, std::memory_order_release);
  } else {
    out_.reset();
    bell_out_.reset();
  }
}

void SocketConnection::arena_answered(bool accepted) {
  std::lock_guard lock(mutex_);
  if (exported_ && accepted) exports_.store(exported_.get(), std::memory_order_release);
  if (exported_ && !exports_) {
    why_no_loan_ = peer_.name + " takes no shared memory, for a reason in its log (TROUPE_LOG=info)";
    std::exchange(exported_, nullptr)->retire();
  }
}

LinkState SocketConnection::link() const {
  std::lock_guard lock(mutex_);
  return {.peer = peer_.id,
          .carrier = stream_.tls() ? Carrier::tls
                     : same_host_  ? Carrier::unix_socket
                                   : Carrier::tcp,
          .ring_up_to = ring_writer_ ? largest_in_ring() : 0,
          .lent_from = exports_ ? Arena::kSmallest : 0,
          .why_no_loan = why_no_loan_,
          .settled = announced_ && (!out_ || ring_writer_) && (!exported_ || exports_)};
}

size_t SocketConnection::largest_in_ring() const { return out_->memory().capacity / 4; }

// Delivers up to `most` messages; whether there was any.
bool SocketConnection::read_ring(size_t most) {
  if (!ring_reader_ || ring_misused_) return false;
  size_t n = 0;
  try {
    while (n < most) {
      std::optional<ReadFrame> frame;
      if (held_) {
        frame.swap(held_);
      } else {
        if (ring_reader_->empty()) break;
        auto bytes = ring_reader_->unread();
        const size_t before = bytes.size();
        frame = ring_frames_.feed(bytes);
        ring_reader_->take(before - bytes.size());
        if (!frame) break;
        if (frame->kind != FrameKind::message)
          throw_invalid("[net] something other than a message in a ring");
      }
      if (frame->number != expected_) {
        held_ = std::move(frame);
        break;
      }
      ++expected_;
      ++n;
      if (!deliver(std::move(*frame))) break;
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

}  // namespace troupe::internal::net
