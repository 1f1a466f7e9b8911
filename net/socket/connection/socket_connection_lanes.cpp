// More sockets for a connection over a long way.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "core/base/log.h"
#include "net/socket/connection/socket_connection.h"
#include "net/socket/loop/round_trip.h"

namespace troupe::internal::net {
namespace {

constexpr Duration kPause = std::chrono::seconds(1);

// Heartbeats go by the lane whose turn it is, and what stands between hosts may forget one that is silent.
void keep_remembered(int fd) {
  const int on = 1, seconds = 60;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
}

}  // namespace

// Under mutex_. Who opened the connection sees what it sends and what comes, so one end is enough.
void SocketConnection::carried(size_t bytes) {
  if (lanes_.bulk || !comeback_ || !opened_ || down_ || bytes < core_->limits().bulk_bytes) return;
  lanes_.bulk = true;
  if (core_->limits().lanes == 0 || round_trip(stream_.fd()) < core_->limits().long_way) return;
  core_->upkeep.post([self = shared_from_this()] { self->dial_lane(); });
}

// On the upkeep thread: the next one. Without all of them the connection goes on by its one socket.
void SocketConnection::dial_lane() {
  LinkWords words{.id = link_id_, .word = LinkWords::Word::lane};
  uint32_t socket;
  {
    std::lock_guard lock(mutex_);
    if (state_ != State::open || down_ || !stream_ || !lanes_.bulk) return;
    words.attempt = comeback_->current();
    words.received = static_cast<uint32_t>(stream_.lanes().size());
    words.direct = static_cast<uint32_t>(core_->limits().lanes);
    if (words.received >= words.direct) return;
    socket = socket_;
  }
  if (lanes_.dialler) lanes_.dialler->abandon();
  lanes_.dialler = core_->dial(
      where_it_listens(), core_->now() + core_->limits().connect, words,
      [weak = weak_from_this(), words, socket](Stream stream, const PeerInfo&, const LinkWords& answer) {
        const auto self = weak.lock();
        if (!self) return;
        if (answer.word == LinkWords::Word::lane)
          self->joins(std::move(stream), words);
        else
          self->no_lane(socket, "it wants no more sockets");
      },
      [weak = weak_from_this(), socket](const Error& why, Comeback::Failure) {
        if (const auto self = weak.lock()) self->no_lane(socket, why.what());
      });
}

// On the upkeep thread. A later large message makes it try again.
void SocketConnection::no_lane(uint32_t socket, const std::string& why) {
  log::info("[net] goes on by one socket to " + who() + ": " + why);
  core_->upkeep.at(core_->now() + kPause, [weak = weak_from_this(), socket] {
    const auto self = weak.lock();
    if (!self) return;
    std::lock_guard lock(self->mutex_);
    if (self->socket_ == socket) self->lanes_.bulk = false;
  });
}

// Under mutex_.
LinkWords SocketConnection::lane_asked(const LinkWords& theirs) const {
  const bool wanted = !opened_ && comeback_->is_up() && theirs.attempt == comeback_->current() &&
                      theirs.direct <= kMostLanes && theirs.received < theirs.direct;
  return {.id = link_id_,
          .word = wanted ? LinkWords::Word::lane : LinkWords::Word::later,
          .attempt = theirs.attempt,
          .received = theirs.received,
          .direct = theirs.direct};
}

void SocketConnection::joins(Stream stream, const LinkWords& theirs) {
  const auto held = std::make_shared<Stream>(std::move(stream));
  core_->delivery.post(
      [self = shared_from_this(), held, theirs] { self->use_lane(std::move(*held), theirs); });
}

// On the delivery thread. Each end writes by them once it has all.
void SocketConnection::use_lane(Stream stream, const LinkWords& theirs) {
  std::lock_guard reading(read_mutex_);
  bool reads = false;
  {
    std::lock_guard lock(mutex_);
    if (state_ != State::open || down_ || ended_ || coming_ || theirs.attempt != comeback_->current() ||
        theirs.received != stream_.lanes().size())
      return;
    keep_remembered(stream.fd());
    try {
      lanes_.watches.push_back(
          {.read = core_->delivery.watch(stream.fd(), EPOLLONESHOT,
                                         [self = shared_from_this()](uint32_t) { self->on_readable(); })});
    } catch (const Error& e) {  // this end is short of descriptors
      log::info("[net] goes on by one socket to " + who() + ": " + e.message());
      return;
    }
    stream_.join(std::move(stream));
    if (stream_.lanes().size() < theirs.direct) {
      if (opened_) core_->upkeep.post([self = shared_from_this()] { self->dial_lane(); });
      return;
    }
    log::info("[net] goes on by more sockets to " + who());
    const bool first = queue_.empty();
    queue_.push_last(lanes_frame(stream_.lanes().size()));
    if (first) flush(kPrefixBytes);
    reads = std::exchange(lanes_.awaited, false);
    if (reads) stream_.read_lanes();
  }
  if (reads) read_soon();
}

// Under read_mutex_: by the first socket, whose last frame that is. False once the connection is closed.
bool SocketConnection::lanes_follow(size_t lanes) {
  if (!comeback_ || stream_.reads_lanes())
    return misused(Error(ErrorKind::invalid, "[net] more sockets than were asked for"));
  std::lock_guard lock(mutex_);
  lanes_.awaited = stream_.lanes().size() < lanes;
  if (read_watch_) core_->delivery.change(read_watch_, stream_.fd(), EPOLLONESHOT);
  if (!lanes_.awaited) stream_.read_lanes();
  return true;
}

// Under read_mutex_: the lane of the turn is empty.
void SocketConnection::watch_lane() {
  if (!stream_.reads_lanes()) return;
  const size_t lane = stream_.reads();
  std::lock_guard lock(mutex_);
  if (lane < lanes_.watches.size() && lanes_.watches[lane].read)
    core_->delivery.change(lanes_.watches[lane].read, stream_.lanes()[lane].fd(), EPOLLIN | EPOLLONESHOT);
}

void SocketConnection::shut_down_writing() {
  ::shutdown(stream_.fd(), SHUT_WR);
  for (const Stream& lane : stream_.lanes()) ::shutdown(lane.fd(), SHUT_WR);
}

// Under mutex_, before they are closed.
void SocketConnection::unwatch_sockets() {
  if (read_watch_) core_->delivery.unwatch(std::exchange(read_watch_, 0), stream_.fd());
  if (write_watch_) core_->upkeep.unwatch(std::exchange(write_watch_, 0), stream_.fd());
  for (size_t i = 0; i < lanes_.watches.size(); ++i) {
    const int fd = stream_.lanes()[i].fd();
    if (lanes_.watches[i].read) core_->delivery.unwatch(lanes_.watches[i].read, fd);
    if (lanes_.watches[i].write) core_->upkeep.unwatch(lanes_.watches[i].write, fd);
  }
  lanes_.watches.clear();
}

}  // namespace troupe::internal::net
