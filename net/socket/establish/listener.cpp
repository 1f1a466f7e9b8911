#include "net/socket/establish/listener.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/base/log.h"
#include "net/socket/connection/socket_connection.h"

namespace troupe::internal::net {
namespace {

constexpr int kAcceptsPerTurn = 16;
constexpr Duration kNoDescriptors = std::chrono::milliseconds(100);
// While others wait, a dawdler has this part of the time: with a hello that lacks its proof, with a part of a
// hello, and with nothing at all.
constexpr int kPatience = 10, kPatienceBegun = 100, kPatienceSilent = 5000;

}  // namespace

ListenPoint::ListenPoint(std::shared_ptr<Reactor> core, const Address& address) : core_(std::move(core)) {
  fd_ = listen_on(address, address_, core_->limits().connect);
  struct stat info{};
  if (address_.kind == Address::Kind::path && ::stat(address_.name.c_str(), &info) == 0)
    device_ = info.st_dev, inode_ = info.st_ino;
}

ListenPoint::~ListenPoint() { close(); }

void ListenPoint::start() {
  std::lock_guard lock(mutex_);
  watch_ = core_->upkeep.watch(fd_.get(), EPOLLIN,
                               [self = shared_from_this()](uint32_t) { self->on_acceptable(); });
  core_->listens(fd_.get(), true);
}

void ListenPoint::close() {
  std::lock_guard lock(mutex_);
  if (!fd_) return;
  if (watch_) core_->upkeep.unwatch(std::exchange(watch_, 0), fd_.get());
  core_->listens(fd_.get(), false);
  struct stat info{};
  if (inode_ && ::lstat(address_.name.c_str(), &info) == 0 && info.st_dev == device_ && info.st_ino == inode_)
    ::unlink(address_.name.c_str());
  fd_.reset();
}

void ListenPoint::on_acceptable() {
  for (int i = 0; i < kAcceptsPerTurn && !paused_; ++i) {
    if (links_.size() >= static_cast<size_t>(std::max(core_->limits().unauthenticated, 1))) {
      full_ = true;
      std::lock_guard lock(mutex_);
      if (fd_ && watch_) core_->upkeep.change(watch_, fd_.get(), 0);
      break;
    }
    if (!accept_one()) break;
  }
  if (full_) watch_house();
}

bool ListenPoint::accept_one() {
  Descriptor fd;
  int error;
  {
    std::lock_guard lock(mutex_);
    if (!fd_) return false;
    fd = Descriptor(::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    error = errno;
  }
  if (fd) {
    tune(fd.get());
    begin(std::move(fd));
    return true;
  }
  if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
    core_->warn(
        fmt::format("[net] cannot accept connections on {} for now: {}", address_.str(), errno_text(error)));
    pause(kNoDescriptors);
  }
  // Otherwise the newcomer has left already, or there is none.
  return error == ECONNABORTED || error == EINTR || error == EPROTO;
}

// The queue stays readable, so that only not looking at it keeps this thread from spinning.
void ListenPoint::pause(Duration time) {
  std::lock_guard lock(mutex_);
  if (!fd_ || !watch_) return;
  paused_ = true;
  core_->upkeep.change(watch_, fd_.get(), 0);
  core_->upkeep.at(core_->now() + time, [self = shared_from_this()] {
    self->paused_ = false;
    std::lock_guard again(self->mutex_);
    if (self->fd_ && self->watch_ && !self->full_)
      self->core_->upkeep.change(self->watch_, self->fd_.get(), EPOLLIN);
  });
}

void ListenPoint::begin(Descriptor fd) {
  const uint64_t number = next_number_++;
  const auto from = peer_text(fd.get());
  const std::string text = from.starts_with("tcp:") ? from : address_.str();
  const auto link = std::make_shared<HandshakeLink>(core_, std::move(fd), Handshake::Role::listener,
                                                    core_->now() + core_->limits().handshake);
  links_.emplace(number, link);
  const auto self = shared_from_this();
  link->start(
      [self, number, text](Stream done, PeerInfo peer, const LinkWords& answer, const LinkWords& dial) {
        self->ended(number);
        const auto& core = self->core_;
        if (dial.outlives() && dial.word != LinkWords::Word::fresh)
          return core->comes_back(std::move(done), answer, dial);
        const auto c = std::make_shared<SocketConnection>(core, std::move(done), std::move(peer), text,
                                                          LinkOfConnection{answer, false});
        core->add(c);
        core->delivery.post([core, c] {
          if (core->shutting_down())
            c->abandon();
          else
            c->start([&] { core->events().on_accepted(c); });
        });
      },
      [self, number, from](const HandshakeLink::Failure& failure) {
        self->ended(number);
        self->refused(from, failure);
      });
}

void ListenPoint::refused(const std::string& from, const HandshakeLink::Failure& failure) {
  const auto text =
      fmt::format("[net] refused a connection to {} from {}: it {}", address_.str(), from, failure.text);
  if (failure.refusal == Handshake::Refusal::none)
    log::info(text);  // it left by itself
  else
    core_->warn(text, failure.refusal);
}

void ListenPoint::ended(uint64_t number) {
  links_.erase(number);
  if (!std::exchange(full_, false) || paused_) return;
  std::lock_guard lock(mutex_);
  if (fd_ && watch_) core_->upkeep.change(watch_, fd_.get(), EPOLLIN);
}

TimePoint ListenPoint::patience_with(const HandshakeLink& link) const {
  using Progress = HandshakeLink::Progress;
  const Progress came = link.came();
  const int part = came == Progress::greeted ? kPatience
                   : came == Progress::begun ? kPatienceBegun
                                             : kPatienceSilent;
  return link.started() + core_->limits().handshake / part;
}

// While the house is full, guests leave once their shortened time is over.
void ListenPoint::watch_house() {
  if (house_timer_) core_->upkeep.cancel(std::exchange(house_timer_, 0));
  if (!full_ || links_.empty()) return;
  std::pair<TimePoint, std::shared_ptr<HandshakeLink>> next{TimePoint::max(), nullptr};
  for (const auto& [number, link] : links_)
    if (const TimePoint until = patience_with(*link); until < next.first) next = {until, link};
  if (core_->now() >= next.first) return next.second->expire(/*crowded=*/true);
  house_timer_ = core_->upkeep.at(next.first, [self = shared_from_this()] {
    self->house_timer_ = 0;
    self->watch_house();
  });
}

}  // namespace troupe::internal::net
