#include "net/socket/connection/socket_connection.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "core/base/log.h"

namespace troupe::internal::net {
namespace {

constexpr Duration kHeldUp = std::chrono::seconds(1);  // before it is told of
constexpr Duration kLinger = std::chrono::seconds(1);
constexpr size_t kCallerBudget = 8 << 20;  // bytes that a caller writes before `upkeep` takes over
constexpr size_t kTurnBudget = 4 << 20;  // bytes that `upkeep` writes for one connection before the next one

std::string seconds(Duration d) { return fmt::format("{:g} s", std::chrono::duration<double>(d).count()); }

}  // namespace

SocketConnection::SocketConnection(std::shared_ptr<Reactor> core, Stream stream, PeerInfo peer,
                                   std::string address, const LinkOfConnection& link)
    : core_(std::move(core)),
      peer_(std::move(peer)),
      address_(std::move(address)),
      same_host_(is_unix(stream.fd())),
      link_id_(link.words.id),
      opened_(link.opened),
      last_heard_(core_->now().time_since_epoch().count()),
      stream_(std::move(stream)),
      last_sent_(core_->now()),
      reader_(core_->limits()),
      ring_frames_(core_->limits()) {
  if (same_host_ || !link.words.outlives() || !core_->can_dial()) return;
  comeback_.emplace(opened_, link_id_, core_->limits().dead_after);
  comeback_->set_direct(link.words.direct != 0);
  queue_.keep_up_to(core_->limits().unacknowledged_bytes);
}

SocketConnection::~SocketConnection() {
  if (exported_) exported_->retire();
}

std::string SocketConnection::who() const {
  return peer_.name.empty() ? fmt::format("the peer ({})", address_)
                            : fmt::format("worker {} ({})", peer_.name, address_);
}

Error SocketConnection::lost(const std::string& what) const {
  return Error(ErrorKind::disconnected, "[net] " + what).with_worker(peer_.name);
}

// With mutex_, where it is broken.
Error SocketConnection::gone() const { return reason_ ? *reason_ : lost(who() + " is gone"); }

bool SocketConnection::start(const std::function<void()>& announce) {
  {
    std::lock_guard lock(mutex_);
    if (state_ == State::closed) return false;
    offer_memory();
    if (comeback_ && opened_ && !down_) push_word();  // the peer has to know where to find this side
    announced_ = true;
  }
  try {
    announce();
  } catch (...) {
    log::error(fmt::format("[net] the handler of a new connection threw: {}", current_error().what()));
  }
  try {
    std::lock_guard lock(mutex_);  // only this thread closes: it is open or closing
    if (!stream_) return true;     // another socket comes
    read_watch_ = core_->delivery.watch(stream_.fd(), EPOLLIN,
                                        [self = shared_from_this()](uint32_t) { self->on_readable(); });
  } catch (const Error& e) {
    finish_outside(lost(fmt::format("cannot read from {}: {}", who(), e.message())));
  }
  if (stream_.reads_ahead()) read_soon();  // more than the handshake may have come
  return true;
}

void SocketConnection::send(Message message) {
  expect_from(shared_from_this());
  try {
    export_buffers(message);
    hand_over(message);
  } catch (...) {
    take_back(message);
    throw;
  }
}

void SocketConnection::hand_over(Message& message) {
  const size_t size = head_bytes(message) + 8 * message.header.size() + message.buffer_bytes();
  std::lock_guard lock(mutex_);
  if (state_ != State::open) throw Error(*reason_);
  if (broken_) throw gone();
  const bool first = queue_.empty();
  if (write_ring(message, size)) {
    if (!message.buffers.empty()) sent_.add(message, SentBy::ring);
    for (Buffer& b : message.buffers) b.exported = 0;  // the receiver's now
    if (first) wake_reader();                          // else what is queued will wake it
    return;
  }
  if (!first && queue_.bytes() + size > core_->limits().queue_bytes)
    throw_error(
        ErrorKind::overloaded,
        fmt::format("[net] {} bytes wait to be sent to {}; a message of {} more is over the limit of {}",
                    queue_.bytes(), who(), size, core_->limits().queue_bytes));
  std::vector<std::byte> head;
  if (comeback_ && received_.load(std::memory_order_relaxed) != said_) {
    head = word();
    head.resize(kPrefixBytes + head_bytes(message));
    write_head(head.data() + kPrefixBytes, message, core_->limits(), next_number_);
  } else {
    head = message_head(message, core_->limits(), next_number_);
  }
  ++next_number_;
  if (!message.buffers.empty()) sent_.add(message, stream_.tls() ? SentBy::tls : SentBy::socket);
  queue_.push(std::move(head), true, std::move(message));
  if (first) flush(kCallerBudget);
  queued_.store(queue_.bytes(), std::memory_order_relaxed);
  carried(size);
  if (first && broken_) throw gone();
}

SentCounts SocketConnection::sent() const {
  std::lock_guard lock(mutex_);
  return sent_;
}

void SocketConnection::flush(size_t budget) {
  if (down_) return queued_.store(queue_.bytes(), std::memory_order_relaxed);
  const size_t before = queue_.bytes();
  WriteQueue::Outcome outcome;
  try {
    outcome = queue_.write_to(stream_, budget);
  } catch (const Error& e) {  // a device has failed, and part of a message is out
    broken_ = true;
    queue_.clear();
    queued_.store(0, std::memory_order_relaxed);
    reason_ = lost(fmt::format("the connection to {} broke: {}", who(), e.message()));
    core_->delivery.post([self = shared_from_this(), why = *reason_] { self->finish_outside(why); });
    return;
  }
  const int error = errno;
  if (queue_.bytes() < before) last_sent_ = core_->now();
  if (outcome == WriteQueue::Outcome::broken) {
    // What the peer sent before it left is still to be read, and with it perhaps its reason.
    if (comeback_)
      down_ = true;
    else
      broken_ = true, queue_.clear();
    core_->delivery.post(
        [self = shared_from_this(), error, n = socket_] { self->after_failed_write(error, n); });
  } else if (outcome == WriteQueue::Outcome::unacknowledged) {
    behind_ = true;
    if (received_.load(std::memory_order_relaxed) != said_) push_word_ahead();
  } else if (outcome != WriteQueue::Outcome::drained) {
    const uint32_t events = EPOLLOUT | EPOLLONESHOT;
    const Stream& way = stream_.writes_lanes() ? stream_.lanes()[stream_.writes()] : stream_;
    uint64_t& watch = stream_.writes_lanes() ? lanes_.watches[stream_.writes()].write : write_watch_;
    if (watch == 0)
      watch = core_->upkeep.watch(way.fd(), events,
                                  [self = shared_from_this()](uint32_t) { self->on_writable(); });
    else
      core_->upkeep.change(watch, way.fd(), events);
  }
  queued_.store(queue_.bytes(), std::memory_order_relaxed);
}

void SocketConnection::on_writable() {
  std::vector<Promise<void>> ready;
  {
    std::lock_guard lock(mutex_);
    if (state_ == State::closed || broken_ || queue_.empty()) return;
    flush(kTurnBudget);
    linger_if_drained();
    ready = let_in();
  }
  if (!ready.empty())
    core_->delivery.post([ready = std::move(ready)] {
      for (const auto& p : ready) p.set();
    });
}

// Returns those who wait for room, if there is.
std::vector<Promise<void>> SocketConnection::let_in() {
  if (state_ != State::open || queue_.bytes() > core_->limits().queue_bytes / 2) return {};
  return std::exchange(waiting_, {});
}

// The goodbye is out: tell the kernel, and wait for the peer to close. Closing first could destroy what is on
// its way.
void SocketConnection::linger_if_drained() {
  if (state_ == State::closing && queue_.empty() && !broken_ && !down_) shut_down_writing();
}

Future<void> SocketConnection::writable() {
  std::lock_guard lock(mutex_);
  if (state_ != State::open) return Future<void>::failed(*reason_);
  if (broken_) return Future<void>::failed(gone());
  if (queue_.bytes() <= core_->limits().queue_bytes / 2) return Future<void>::ready({});
  return waiting_.emplace_back().future();
}

void SocketConnection::close(const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (state_ != State::open) return;
  state_ = State::closing;
  reason_ = lost(fmt::format("the connection to {} was closed here: {}", who(), reason));
  const auto self = shared_from_this();
  if (!broken_) {
    const bool first = queue_.empty();
    queue_.push(goodbye_frame(reason, next_number_++), true);
    if (first) flush(kCallerBudget);
    queued_.store(queue_.bytes(), std::memory_order_relaxed);
    linger_if_drained();
  }
  linger_timer_ = core_->upkeep.at(core_->now() + (down_ ? Duration::zero() : kLinger),
                                   [self] { self->core_->delivery.post([self] { self->abandon(); }); });
}

void SocketConnection::keep_alive(TimePoint now, TimePoint watched_since) {
  watch_delivery(now);
  const RingWriter* towards = towards_.load(std::memory_order_acquire);
  if (towards) towards->beat();
  if (has_ring_.load(std::memory_order_acquire))
    if (const uint32_t beats = ring_reader_->beats(); std::exchange(beats_, beats) != beats)
      last_heard_.store(now.time_since_epoch().count());
  // As a heartbeat on the socket would: a message that nobody was woken for waits no longer than this.
  if (std::unique_lock reading(read_mutex_, std::try_to_lock);
      reading && ring_reader_ && !ring_misused_ && !held_ && !ring_reader_->empty())
    core_->delivery.post([self = shared_from_this()] { self->on_readable(); });
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || state_ != State::open || broken_) return;  // locked: somebody is sending
  if (comeback_ && !down_ &&
      (received_.load(std::memory_order_relaxed) != said_ || listeners_seen_ != core_->listeners()))
    push_word();
  if (!towards && queue_.empty() && now - last_sent_ >= core_->limits().heartbeat / 2) push_word();
  if (comeback_) {
    lock.unlock();
    look_for_peer();
    lock.lock();
    if (state_ != State::open || down_ || !stream_) return;
  }
  if (!broken_ && !suspected_ && silent(now, watched_since)) {
    suspected_ = true;
    // Only the reader knows for sure: it may be about to read. A caller that reads now is not waited for.
    core_->delivery.post([self = shared_from_this(), watched_since] {
      const std::unique_lock reading(self->read_mutex_, std::try_to_lock);
      {
        std::lock_guard again(self->mutex_);
        self->suspected_ = false;
        if (!reading || self->state_ != State::open || self->down_) return;
        if (!self->silent(self->core_->now(), watched_since)) return;
        // A peer whose bytes wait to be read is not silent, however busy this side is. Bytes in sockets whose
        // turn has not come do not count: nobody reads them before those that are missing.
        if (!self->lanes_.awaited && self->stream_.unread()) return;
      }
      const auto after = seconds(self->core_->limits().dead_after);
      self->finish(self->lost(fmt::format("{} has been silent for {}", self->who(), after)));
    });
  }
}

// The numbers of two messages differ, so the same one is the same message.
void SocketConnection::watch_delivery(TimePoint now) {
  const uint32_t handled = handled_.load(std::memory_order_relaxed);
  if (handled != watched_) {
    watched_ = handled;
    watched_since_ = now;
  } else if (handled && watched_since_ != TimePoint::max() && now - watched_since_ >= kHeldUp) {
    core_->events().on_held_up(*this, now - std::exchange(watched_since_, TimePoint::max()));
  }
}

// What waits to be read does not count here.
bool SocketConnection::silent(TimePoint now, TimePoint watched_since) const {
  const TimePoint heard{Duration(last_heard_.load())};
  return now - std::max(heard, watched_since) > core_->limits().dead_after;
}

void SocketConnection::abandon() {
  std::optional<Error> reason;
  {
    std::lock_guard lock(mutex_);
    if (state_ == State::closed) return;
    reason = reason_;
  }
  finish_outside(reason ? *reason : lost(fmt::format("the connection to {} was closed here", who())));
}

void SocketConnection::finish_outside(const Error& reason) {
  std::lock_guard reading(read_mutex_);
  finish(reason);
}

// Not on a thread of the user: who hears of the end may take its time.
void SocketConnection::finish(Error reason) {
  const auto self = shared_from_this();
  if (!core_->delivery.on_thread()) {
    finishing_ = true;
    core_->delivery.post([self, reason] { self->finish_outside(reason); });
    return;
  }
  std::vector<Promise<void>> waiting;
  bool announced;
  {
    std::lock_guard lock(mutex_);
    if (state_ == State::closed) return;
    state_ = State::closed;
    reason_ = reason;
    announced = announced_;
    unwatch_sockets();
    if (bell_watch_) core_->delivery.unwatch(bell_watch_, bell_in_.get());
    if (linger_timer_) core_->upkeep.cancel(linger_timer_);
    if (comeback_) core_->upkeep.post([self] { self->stop_dialling(); });
    stream_.reset();
    bell_in_.reset();
    bell_out_.reset();
    queue_.clear();
    queued_ = 0;
    waiting.swap(waiting_);
  }
  if (exported_) exported_->retire();
  for (const auto& p : waiting) p.fail(reason);
  if (announced) {
    try {
      core_->events().on_closed(*this, reason);
    } catch (...) {
      log::error(fmt::format("[net] the handler of a closed connection threw: {}", current_error().what()));
    }
  }
  held_.reset();
  if (imported_) imported_->detach();  // last: it copies what tensors still have
  core_->remove(this);
}

}  // namespace troupe::internal::net
