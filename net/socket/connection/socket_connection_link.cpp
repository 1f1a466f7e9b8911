// A socket that has broken, and the one in its place.
#include <fmt/format.h>
#include <sys/epoll.h>

#include "core/base/log.h"
#include "net/socket/connection/socket_connection.h"

namespace troupe::internal::net {
namespace {

constexpr size_t kSayAfter = 64 << 10;  // bytes that have come, if nothing is sent that says so
constexpr size_t kWordBudget = 1 << 20;

}  // namespace

// ---- acknowledgements

// What this side says with a heartbeat, and before messages; under mutex_.
std::vector<std::byte> SocketConnection::word() {
  if (!comeback_) return heartbeat_frame();
  if (const uint32_t now = core_->listeners(); std::exchange(listeners_seen_, now) != now)
    own_port_ = core_->port_beside(stream_.fd());
  said_ = received_.load(std::memory_order_relaxed);
  return heartbeat_frame(said_, own_port_);
}

void SocketConnection::push_word() {
  const bool first = queue_.empty();
  if (behind_ && !first) return push_word_ahead();
  queue_.push(word());
  if (first) flush(kWordBudget);
}

// What is queued waits for the peer, which may wait for this. The socket has room: it is not why they wait.
void SocketConnection::push_word_ahead() {
  behind_ = false;
  queue_.push_ahead(word());
  flush(kWordBudget);
}

// Under read_mutex_. Mostly an answer goes out meanwhile and says it.
void SocketConnection::acknowledge_soon(size_t bytes) {
  unsaid_bytes_ += bytes;
  if (bytes >= core_->limits().bulk_bytes) {
    std::lock_guard lock(mutex_);
    carried(bytes);
  }
  if (unsaid_bytes_ < kSayAfter) return;
  unsaid_bytes_ = 0;
  std::lock_guard lock(mutex_);
  if (state_ != State::open || down_ || said_ == received_.load(std::memory_order_relaxed)) return;
  push_word();
}

// False once the connection is closed.
bool SocketConnection::took_word(const ReadFrame& frame) {
  if (!comeback_) return true;
  std::vector<WriteQueue::Frame> over;  // freed without the lock
  std::vector<Promise<void>> ready;
  bool sent;
  {
    std::lock_guard lock(mutex_);
    if (frame.port) peer_port_ = frame.port;  // a word that is sent again may be of before it listened
    sent = queue_.acknowledge(frame.number, over);
    if (sent && std::exchange(behind_, false)) {
      flush(kWordBudget);
      linger_if_drained();
      ready = let_in();
    }
  }
  if (!ready.empty())
    core_->delivery.post([ready = std::move(ready)] {
      for (const auto& p : ready) p.set();
    });
  return sent || misused(Error(ErrorKind::invalid, fmt::format("[net] message number {} was not sent, and is "
                                                               "acknowledged",
                                                               frame.number - 1)));
}

// ---- the end of a socket

// Under read_mutex_.
void SocketConnection::ended(Error reason) {
  if (!comeback_) return finish(std::move(reason));
  ended_ = true;
  core_->delivery.post([self = shared_from_this(), reason = std::move(reason), n = socket_] {
    self->ended_outside(reason, n);
  });
}

void SocketConnection::ended_outside(const Error& reason, uint32_t socket) {
  std::lock_guard reading(read_mutex_);
  {
    std::lock_guard lock(mutex_);
    if (state_ == State::closed || socket != socket_) return;
    down_ = true;
    unwatch_sockets();
    stream_.reset();
    why_ended_ = reason;
    if (!coming_) comeback_->broke();
    if (state_ == State::open && (coming_ || opened_ || peer_port_)) {
      log::info(fmt::format("[net] connects to {} again: {}", who(), reason.what()));
      core_->upkeep.post([self = shared_from_this()] { self->look_for_peer(); });
      return;
    }
  }
  finish(reason);
}

// ---- another one

LinkWords SocketConnection::asked(const LinkWords& theirs) {
  LinkWords answer{.id = link_id_, .word = LinkWords::Word::unknown};
  std::lock_guard lock(mutex_);
  if (state_ != State::open) return answer;
  const TimePoint now = core_->now();
  if (theirs.word == LinkWords::Word::lane) return lane_asked(theirs);
  answer = comeback_->asked(now, theirs, received_.load());
  if (answer.word != LinkWords::Word::again) return answer;
  coming_ = theirs.attempt;
  last_heard_.store(now.time_since_epoch().count());
  return answer;
}

void SocketConnection::comes_back(Stream stream, const LinkWords& theirs) {
  if (dialler_) std::exchange(dialler_, nullptr)->abandon();
  const auto held = std::make_shared<Stream>(std::move(stream));
  core_->delivery.post([self = shared_from_this(), held, theirs] { self->use(std::move(*held), theirs); });
}

// On the delivery thread: nobody reads the old one.
void SocketConnection::use(Stream stream, const LinkWords& theirs) {
  std::vector<WriteQueue::Frame> over;  // freed without the locks
  std::vector<Promise<void>> ready;
  std::lock_guard reading(read_mutex_);
  bool sent = true;
  {
    std::lock_guard lock(mutex_);
    if (state_ != State::open || coming_ != theirs.attempt) return;
    coming_ = 0;
    unwatch_sockets();
    stream_ = std::move(stream);
    ++socket_;
    lanes_.bulk = lanes_.awaited = false;
    reader_ = FrameReader(core_->limits());
    ended_ = down_ = behind_ = false;
    listeners_seen_ = UINT32_MAX;  // this end may have another address
    last_sent_ = core_->now();
    last_heard_.store(last_sent_.time_since_epoch().count());
    sent = queue_.again(theirs.received, over);
    if (sent) {
      if (announced_)
        read_watch_ = core_->delivery.watch(stream_.fd(), EPOLLIN,
                                            [self = shared_from_this()](uint32_t) { self->on_readable(); });
      log::info(fmt::format("[net] is connected to {} again", who()));
      if (queue_.empty()) queue_.push(word());
      flush(kWordBudget);
      ready = let_in();
    }
  }
  for (const auto& p : ready) p.set();
  if (!sent) {
    misused(Error(ErrorKind::invalid, "[net] it has received more messages than were sent"));
    return;
  }
  if (stream_.reads_ahead()) read_soon();
}

// ---- dialling, on the upkeep thread

Address SocketConnection::where_it_listens() const {
  Address at = parse_address(address_);
  std::lock_guard lock(mutex_);
  if (!opened_) at.port = peer_port_;
  return at;
}

void SocketConnection::look_for_peer() {
  std::optional<LinkWords> dials;
  std::optional<Error> over;
  {
    std::lock_guard lock(mutex_);
    if (state_ != State::open) return;
    const TimePoint now = core_->now();
    const auto heard = std::max(TimePoint(Duration(last_heard_.load())), core_->watched_since());
    auto next = comeback_->next(now, heard);
    if (next.what == Comeback::Do::dial && (opened_ || peer_port_))
      dials = comeback_->dial(now, received_.load());
    if (dials) next = comeback_->next(now, heard);
    if (next.what == Comeback::Do::give_up) {
      if (down_ && why_ended_)
        over = lost(fmt::format("{}, and nobody has answered there for {:g} s", why_ended_->message(),
                                std::chrono::duration<double>(core_->limits().dead_after).count()));
    } else if (!comeback_->is_up() || dials) {
      if (look_timer_) core_->upkeep.cancel(look_timer_);
      look_timer_ = core_->upkeep.at(std::max(next.again, now + std::chrono::milliseconds(1)),
                                     [self = shared_from_this()] { self->look_for_peer(); });
    }
  }
  if (over)
    return core_->delivery.post([self = shared_from_this(), why = *over] {
      {
        std::lock_guard lock(self->mutex_);
        if (!self->down_) return;  // another socket came before this
      }
      self->finish_outside(why);
    });
  if (dials) dial(*dials);
}

void SocketConnection::dial(const LinkWords& words) {
  if (dialler_) dialler_->abandon();
  dialler_ = core_->dial(
      where_it_listens(), core_->now() + comeback_->patience(), words,
      [weak = weak_from_this(), n = words.attempt](Stream stream, const PeerInfo&, const LinkWords& answer) {
        if (const auto self = weak.lock()) self->dialled(n, std::move(stream), answer);
      },
      [weak = weak_from_this(), n = words.attempt](const Error&, Comeback::Failure failure) {
        if (const auto self = weak.lock()) self->not_dialled(n, failure);
      });
}

void SocketConnection::dialled(uint32_t attempt, Stream stream, const LinkWords& answer) {
  using Word = LinkWords::Word;
  Word word;
  {
    std::lock_guard lock(mutex_);
    if (state_ != State::open) return;
    word = comeback_->answered(attempt, core_->now(), answer);
    if (word == Word::again) coming_ = attempt;
  }
  LinkWords theirs = answer;
  theirs.attempt = attempt;
  if (word == Word::again) {
    comes_back(std::move(stream), theirs);
  } else if (word == Word::unknown) {
    core_->delivery.post([self = shared_from_this()] {
      self->finish_outside(self->why_ended_.value_or(
          self->lost(fmt::format("{} has closed the connection, or begun anew", self->who()))));
    });
  } else {
    look_for_peer();
  }
}

void SocketConnection::not_dialled(uint32_t attempt, Comeback::Failure failure) {
  bool goes_on;
  {
    std::lock_guard lock(mutex_);
    if (state_ != State::open) return;
    goes_on = comeback_->failed(attempt, core_->now(), failure);
  }
  if (goes_on) return look_for_peer();
  core_->delivery.post([self = shared_from_this()] { self->finish_outside(*self->why_ended_); });
}

void SocketConnection::stop_dialling() {
  if (dialler_) std::exchange(dialler_, nullptr)->abandon();
  if (lanes_.dialler) std::exchange(lanes_.dialler, nullptr)->abandon();
  if (look_timer_) core_->upkeep.cancel(std::exchange(look_timer_, 0));
}

}  // namespace troupe::internal::net
