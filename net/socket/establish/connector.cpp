#include "net/socket/establish/connector.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace troupe::internal::net {
namespace {

constexpr Duration kFirstBackoff = std::chrono::milliseconds(10),
                   kLastBackoff = std::chrono::milliseconds(200);
constexpr int kUnheard = 6;  // listeners that leave without a byte, where nothing else is tried again: 0.3 s

}  // namespace

Connector::Connector(std::shared_ptr<Reactor> core, Address address, bool retry, TimePoint deadline,
                     const LinkWords& words)
    : core_(std::move(core)),
      address_(std::move(address)),
      retry_(retry),
      words_(words),
      deadline_(deadline),
      backoff_(kFirstBackoff) {}

void Connector::start(Made made, Failed failed) {
  made_ = std::move(made);
  failed_ = std::move(failed);
  core_->upkeep.post([self = shared_from_this()] {
    if (self->ended_) return;
    self->deadline_timer_ =
        self->core_->upkeep.at(self->deadline_, [self] { self->give_up(ErrorKind::disconnected, ""); });
    self->attempt();
  });
}

void Connector::cancel() {
  if (!ended_) give_up(ErrorKind::disconnected, "the transport was shut down");
}

void Connector::abandon() {
  if (std::exchange(ended_, true)) return;
  detach();
  made_ = nullptr;
  failed_ = nullptr;
}

void Connector::attempt() {
  if (ended_) return;
  if (auto at_once = resolve_numeric(address_); !at_once.found.empty()) return resolved(std::move(at_once));
  last_failure_ = "no name server has said yet what " + address_.name + " is";
  // The answer comes back through the loop, if it is still there.
  resolve_elsewhere(address_, [self = weak_from_this(), core = std::weak_ptr(core_),
                               n = ++attempt_](const Resolved& answer) {
    if (const auto alive = core.lock())
      alive->upkeep.post([self, n, answer] {
        const auto me = self.lock();
        if (me && !me->ended_ && me->attempt_ == n) me->resolved(answer);
      });
  });
}

void Connector::resolved(Resolved answer) {
  candidates_ = std::move(answer.found);
  next_ = 0;
  if (candidates_.empty()) return attempt_failed(answer.why);
  try_next();
}

void Connector::try_next() {
  const SockAddr& to = candidates_[next_++];
  const auto self = shared_from_this();
  fd_ = open_socket(to.family());
  if (!fd_) return attempt_failed(errno_text(errno), true);
  if (::connect(fd_.get(), to.get(), to.size) == 0) return shake_hands();
  // A Unix socket whose queue is full says EAGAIN and cannot be waited for.
  if (errno != EINPROGRESS) return attempt_failed(errno_text(errno), errno == EAGAIN);
  try {
    watch_ = core_->upkeep.watch(fd_.get(), EPOLLOUT, [self](uint32_t) { self->on_connected(); });
  } catch (const Error& e) {
    return attempt_failed(e.message(), true);
  }
  // A host that answers nothing must not use up the time of the next address.
  const auto share = (deadline_ - core_->now()) / static_cast<int64_t>(candidates_.size() - next_ + 1);
  attempt_timer_ = core_->upkeep.at(core_->now() + share, [self] { self->attempt_failed("no answer"); });
}

void Connector::on_connected() {
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error) return attempt_failed(errno_text(error));
  if (watch_) core_->upkeep.unwatch(std::exchange(watch_, 0), fd_.get());
  if (attempt_timer_) core_->upkeep.cancel(std::exchange(attempt_timer_, 0));
  shake_hands();
}

void Connector::shake_hands() {
  if (is_self_connected(fd_.get())) return attempt_failed(errno_text(ECONNREFUSED));
  const auto until = std::min(deadline_, core_->now() + core_->limits().handshake);
  link_ = std::make_shared<HandshakeLink>(core_, std::move(fd_), Handshake::Role::connector, until,
                                          address_.name, words_);
  const auto self = shared_from_this();
  link_->start(
      [self](Stream stream, PeerInfo peer, const LinkWords&, const LinkWords& answer) {
        self->ended_ = true;
        self->detach();
        self->failed_ = nullptr;
        if (const auto made = std::exchange(self->made_, nullptr))
          made(std::move(stream), std::move(peer), answer);
      },
      [self](const HandshakeLink::Failure& failure) {
        using Refusal = Handshake::Refusal;
        const auto where = self->address_.str();
        switch (failure.refusal) {
          case Refusal::version:
          case Refusal::token:
          case Refusal::job:
          case Refusal::encryption:
          case Refusal::certificate:
          case Refusal::garbage:
            return self->give_up(ErrorKind::invalid, fmt::format("{} {}", where, failure.text),
                                 failure.refusal == Refusal::token || failure.refusal == Refusal::job
                                     ? Failure::stranger
                                     : Failure::failed);
          case Refusal::timeout:
            return self->attempt_failed(fmt::format("it {}", failure.text));
          case Refusal::none:
            return self->attempt_failed(fmt::format("it {}", failure.text),
                                        failure.unheard && ++self->unheard_ < kUnheard);
        }
      });
}

void Connector::attempt_failed(const std::string& why, bool temporary) {
  if (ended_) return;
  detach();
  last_failure_ = why;
  if (!temporary && next_ < candidates_.size()) return try_next();
  const TimePoint again = core_->now() + backoff_;
  if ((!retry_ && !temporary) || again >= deadline_)
    return give_up(ErrorKind::disconnected, "",
                   why == errno_text(ECONNREFUSED) ? Failure::refused : Failure::failed);
  backoff_ = std::min<Duration>(backoff_ * 2, kLastBackoff);
  retry_timer_ = core_->upkeep.at(again, [self = shared_from_this()] {
    self->retry_timer_ = 0;
    self->attempt();
  });
}

void Connector::give_up(ErrorKind kind, const std::string& text, Failure failure) {
  if (ended_) return;
  ended_ = true;
  detach();
  const auto limit = std::chrono::duration<double>(core_->limits().connect).count();
  const auto tried = retry_ ? fmt::format(" (tried for up to {:g} s)", limit) : "";
  Error error(kind, text.empty() ? fmt::format("[net] nobody answers at {}{}: {}", address_.str(), tried,
                                               last_failure_)
                                 : "[net] " + text);
  made_ = nullptr;
  if (const auto failed = std::exchange(failed_, nullptr)) failed(error, failure);
}

void Connector::detach() {
  auto& loop = core_->upkeep;
  if (watch_) loop.unwatch(std::exchange(watch_, 0), fd_.get());
  if (attempt_timer_) loop.cancel(std::exchange(attempt_timer_, 0));
  if (retry_timer_) loop.cancel(std::exchange(retry_timer_, 0));
  if (ended_ && deadline_timer_) loop.cancel(std::exchange(deadline_timer_, 0));
  if (const auto link = std::exchange(link_, nullptr)) link->abandon();
  fd_ = Descriptor();
}

}  // namespace troupe::internal::net
