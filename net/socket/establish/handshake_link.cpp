#include "net/socket/establish/handshake_link.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

namespace troupe::internal::net {

HandshakeLink::HandshakeLink(std::shared_ptr<Reactor> core, Descriptor fd, Handshake::Role role,
                             TimePoint deadline, std::string host, LinkWords words)
    : core_(std::move(core)),
      role_(role),
      host_(std::move(host)),
      stream_(std::move(fd)),
      machine_(role, core_->token(), core_->self(), random_nonce(), deadline, core_->job()),
      deadline_(deadline),
      started_(core_->now()) {
  if (role == Handshake::Role::connector) {
    if (words.outlives()) words.path = path_of(stream_.fd(), true);
    machine_.set_link(words);
  } else {
    machine_.set_answer([this](const LinkWords& theirs) { return core_->asked(stream_.fd(), theirs); });
  }
}

void HandshakeLink::start(Done done, Failed failed) {
  done_ = std::move(done);
  failed_ = std::move(failed);
  const auto self = shared_from_this();
  try {
    watch_ = core_->upkeep.watch(stream_.fd(), EPOLLIN, [self](uint32_t) { self->on_readable(); });
  } catch (const Error& e) {
    return fail({Handshake::Refusal::none, e.message()});
  }
  timer_ = core_->upkeep.at(deadline_, [self] { self->expire(); });
  if (role_ == Handshake::Role::listener && !is_unix(stream_.fd())) {
    phase_ = Phase::look;
  } else if (core_->encrypts(stream_.fd())) {
    secure();
    if (shake_hands()) phase_ = Phase::look;  // at the answer
    return;
  }
  progress();
}

HandshakeLink::Progress HandshakeLink::came() const {
  if (machine_.greeted() || (stream_.tls() && stream_.tls()->spoke())) return Progress::greeted;
  if (heard_) return Progress::begun;
  std::byte first;  // it may lie there, and not have been looked at
  return ::recv(stream_.fd(), &first, 1, MSG_PEEK | MSG_DONTWAIT) > 0 ? Progress::begun : Progress::silent;
}

void HandshakeLink::expire(bool crowded) {
  if (crowded && came() == Progress::silent)
    return fail({Handshake::Refusal::timeout, "said nothing, and others wait"});
  machine_.tick(TimePoint::max());
  progress();
}

void HandshakeLink::on_readable() {
  if (phase_ == Phase::look && !look()) return;
  if (phase_ == Phase::tls && !shake_hands()) return;
  if (phase_ != Phase::talk) return;
  // Reads no byte that is not the handshake's: the rest is the connection's.
  while (stream_ && machine_.state() == Handshake::State::waiting) {
    std::array<std::byte, 512> bytes;
    iovec part{bytes.data(), std::min(bytes.size(), machine_.wanted())};
    msghdr m{};
    m.msg_iov = &part, m.msg_iovlen = 1;
    const ssize_t got = stream_.receive(m);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got == 0) return fail({Handshake::Refusal::none, "closed the connection during the handshake"});
    if (got < 0) return fail(broken(errno));
    heard_ = true;
    machine_.receive(std::span(bytes).first(static_cast<size_t>(got)));
    progress();
  }
}

// Of a read that gave this error.
HandshakeLink::Failure HandshakeLink::broken(int error) const {
  const TlsLink* tls = error == EBADMSG ? stream_.tls() : nullptr;
  if (tls && tls->refusal() != Handshake::Refusal::none) return {tls->refusal(), tls->text()};
  return {Handshake::Refusal::none,
          (tls ? "broke TLS (" + tls->text() + ")" : errno_text(error)) + " during the handshake"};
}

// Each side sees by the first byte of the other how it speaks. False: it has to wait, or it is over.
bool HandshakeLink::look() {
  constexpr std::byte kAlert{0x15}, kHello{0x16};  // types of TLS records
  std::byte first;
  ssize_t got;
  do got = ::recv(stream_.fd(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
  while (got < 0 && errno == EINTR);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
  heard_ |= got == 1;
  const bool tls = got == 1 && (first == kHello || first == kAlert);
  phase_ = tls ? Phase::tls : Phase::talk;
  if (got <= 0) {  // whoever reads on says how it ended
    if (stream_.tls()) phase_ = Phase::tls;
  } else if (role_ == Handshake::Role::connector) {
    if (!tls) return refuse(kSpeaksPlainAlone, {});
  } else if (tls && !core_->tls()) {
    return refuse(kSpeaksTlsAlone, no_tls());
  } else if (tls) {
    secure();
  } else if (core_->encrypts(stream_.fd())) {
    return refuse(kSpeaksPlainAlone, tls_wanted());
  }
  return true;
}

void HandshakeLink::secure() {
  stream_.secure(*core_->tls(), role_, host_);
  phase_ = Phase::tls;
}

// False: it has failed. On to the handshake inside once it is done.
bool HandshakeLink::shake_hands() {
  TlsLink& tls = *stream_.tls();
  switch (tls.shake_hands()) {
    case TlsLink::Step::waiting:
      return true;
    case TlsLink::Step::done:
      phase_ = Phase::talk;
      progress();
      return true;
    case TlsLink::Step::failed:
      break;
  }
  fail({tls.refusal(), std::string(tls.text())});
  return false;
}

// The answer is plain. What the other side has sent is taken first: closing would else destroy the answer.
bool HandshakeLink::refuse(const char* what, const std::vector<std::byte>& answer) {
  std::array<std::byte, 4096> unread;
  while (::recv(stream_.fd(), unread.data(), unread.size(), MSG_DONTWAIT) ==
         static_cast<ssize_t>(unread.size()))
    continue;
  if (!answer.empty()) ::send(stream_.fd(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  fail({Handshake::Refusal::encryption, what});
  return false;
}

void HandshakeLink::progress() {
  if (!stream_) return;
  if (role_ == Handshake::Role::listener && machine_.state() == Handshake::State::done &&
      !core_->lets_in(machine_.peer()))
    return fail({Handshake::Refusal::garbage, "comes as a guest, and none is let in here"});
  if (auto out = machine_.take_output(); !out.empty()) {
    // A few hundred bytes on a new socket: they fit, or the other side is not one to wait for.
    iovec part{out.data(), out.size()};
    msghdr m{};
    m.msg_iov = &part, m.msg_iovlen = 1;
    const ssize_t sent = stream_.send(m);
    const bool promised =  // the link has this connection now, and sees that it has broken
        machine_.state() == Handshake::State::done && machine_.link().word == LinkWords::Word::again;
    if (sent != static_cast<ssize_t>(out.size()) && machine_.state() != Handshake::State::refused &&
        !promised)
      return fail({Handshake::Refusal::none, fmt::format("took no bytes during the handshake: {}",
                                                         errno_text(sent < 0 ? errno : EAGAIN))});
  }
  if (machine_.state() == Handshake::State::refused) return fail({machine_.refusal(), machine_.text()});
  if (machine_.state() != Handshake::State::done) return;
  detach();
  if (!stream_.tls()) core_->note_plain(stream_.fd(), machine_.peer());
  auto done = std::exchange(done_, nullptr);
  failed_ = nullptr;
  if (done) done(std::exchange(stream_, Stream()), machine_.peer(), machine_.link(), machine_.peer_link());
}

void HandshakeLink::fail(Failure failure) {
  const auto self = shared_from_this();
  detach();
  stream_.reset();
  done_ = nullptr;
  failure.unheard =
      role_ == Handshake::Role::connector && failure.refusal == Handshake::Refusal::none && !heard_;
  if (const auto failed = std::exchange(failed_, nullptr)) failed(failure);
}

void HandshakeLink::abandon() {
  const auto self = shared_from_this();
  detach();
  stream_.reset();
  done_ = nullptr;
  failed_ = nullptr;
}

void HandshakeLink::detach() {
  if (watch_) core_->upkeep.unwatch(std::exchange(watch_, 0), stream_.fd());
  if (timer_) core_->upkeep.cancel(std::exchange(timer_, 0));
}

}  // namespace troupe::internal::net
