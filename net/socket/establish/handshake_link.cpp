#include "net/socket/establish/handshake_link.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

namespace troupe::internal::net {

HandshakeLink::HandshakeLink(std::shared_ptr<Reactor> core, Fd fd, Handshake::Role role, TimePoint deadline)
    : core_(std::move(core)),
      fd_(std::move(fd)),
      machine_(role, core_->token(), core_->self(), random_nonce(), deadline, core_->job()),
      deadline_(deadline),
      started_(core_->now()) {}

void HandshakeLink::start(Done done, Failed failed) {
  done_ = std::move(done);
  failed_ = std::move(failed);
  const auto self = shared_from_this();
  try {
    watch_ = core_->upkeep.watch(fd_.get(), EPOLLIN, [self](uint32_t) { self->on_readable(); });
  } catch (const Error& e) {
    return fail({Handshake::Refusal::none, e.message()});
  }
  timer_ = core_->upkeep.at(deadline_, [self] { self->expire(); });
  progress();
}

void HandshakeLink::expire() {
  machine_.tick(TimePoint::max());
  progress();
}

void HandshakeLink::on_readable() {
  // Reads no byte that is not the handshake's: the rest is the connection's.
  while (fd_ && machine_.state() == Handshake::State::waiting) {
    std::array<std::byte, 512> bytes;
    const ssize_t got =
        ::recv(fd_.get(), bytes.data(), std::min(bytes.size(), machine_.wanted()), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got == 0) return fail({Handshake::Refusal::none, "closed the connection during the handshake"});
    if (got < 0) return fail({Handshake::Refusal::none, errno_text(errno) + " during the handshake"});
    machine_.receive(std::span(bytes).first(static_cast<size_t>(got)));
    progress();
  }
}

void HandshakeLink::progress() {
  if (!fd_) return;
  if (const auto out = machine_.take_output(); !out.empty()) {
    // A few hundred bytes on a new socket: they fit, or the other side is not one to wait for.
    const ssize_t sent = ::send(fd_.get(), out.data(), out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent != static_cast<ssize_t>(out.size()) && machine_.state() != Handshake::State::refused)
      return fail({Handshake::Refusal::none, fmt::format("took no bytes during the handshake: {}",
                                                         errno_text(sent < 0 ? errno : EAGAIN))});
  }
  if (machine_.state() == Handshake::State::refused) return fail({machine_.refusal(), machine_.text()});
  if (machine_.state() != Handshake::State::done) return;
  detach();
  auto done = std::exchange(done_, nullptr);
  failed_ = nullptr;
  if (done) done(std::exchange(fd_, Fd()), machine_.peer());
}

void HandshakeLink::fail(Failure failure) {
  const auto self = shared_from_this();
  detach();
  fd_ = Fd();
  done_ = nullptr;
  if (const auto failed = std::exchange(failed_, nullptr)) failed(failure);
}

void HandshakeLink::abandon() {
  const auto self = shared_from_this();
  detach();
  fd_ = Fd();
  done_ = nullptr;
  failed_ = nullptr;
}

void HandshakeLink::detach() {
  if (watch_) core_->upkeep.unwatch(std::exchange(watch_, 0), fd_.get());
  if (timer_) core_->upkeep.cancel(std::exchange(timer_, 0));
}

}  // namespace troupe::internal::net
