#include "net/socket/connection/reactor.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/log.h"
#include "core/base/thread.h"
#include "core/memory/cpu_allocator.h"
#include "net/socket/connection/socket_connection.h"

namespace troupe::internal::net {
namespace {

constexpr int kWarningsPerSecond = 10;
constexpr Duration kShutDown = std::chrono::seconds(1);
constexpr Duration kSoon =
    std::chrono::microseconds(200);  // messages that follow each other are worth polling for
constexpr Duration kPollTurn = std::chrono::microseconds(20);
constexpr Duration kComputes = std::chrono::microseconds(50);  // others, if a poll takes longer
// How long a thread that lost its core does not poll: at first, doubled while it goes on, and at most.
constexpr Duration kContended = std::chrono::milliseconds(1), kContendedMost = std::chrono::milliseconds(4);
// The same where threads yield: each time may cost a whole time slice (docs/contributing/decisions.md).
constexpr Duration kCrowded = std::chrono::milliseconds(20), kCrowdedMost = std::chrono::milliseconds(200);
constexpr Duration kStay = std::chrono::milliseconds(1);  // on a core, before looking for another one

}  // namespace

static std::optional<TlsContext> tls_of(const SocketOptions& options, uint64_t job) {
  std::optional<TlsContext> tls;
  if (options.encryption != Encryption::off)
    tls.emplace(options.token, standing_of(options.self.id), job, options.certificate);
  return tls;
}

static uint64_t job_of(const SocketOptions& options) {
  return standing_of(options.self.id) == Standing::guest ? job_of_pass(options.token)
                                                         : job_number(options.token, options.job);
}

Reactor::Reactor(SocketOptions options, Events& events, BeginDial dials)
    : cores_(usable_cores()),
      options_(std::move(options)),
      job_(job_of(options_)),
      tls_(tls_of(options_, job_)),
      events_(events),
      dials_(std::move(dials)),
      tick_(std::max<Duration>(std::min(options_.limits.heartbeat, options_.limits.dead_after / 4),
                               std::chrono::milliseconds(1))) {
  delivery.post([this] { delivery.set_idle([this] { return poll(); }); });
}

bool Reactor::encrypts(int fd) const {
  return tls_ && !is_unix(fd) && (options_.encryption == Encryption::always || !is_within_host(fd));
}

void Reactor::note_plain(int fd, const PeerInfo& peer) {
  if (is_within_host(fd) || noted_plain_.exchange(true)) return;
  log::info(
      fmt::format("[net] links to other hosts, as that to {}, are not encrypted: TROUPE_TLS=1 for all "
                  "workers encrypts them",
                  peer.name));
}

LinkWords Reactor::asked(int fd, const LinkWords& theirs) const {
  if (!theirs.outlives() || is_unix(fd)) return {};
  if (theirs.word == LinkWords::Word::fresh)
    return {.id = theirs.id, .direct = theirs.path == path_of(fd, false)};
  for (const auto& c : connections())
    if (c->is_link(theirs.id)) return c->asked(theirs);
  return {.id = theirs.id, .word = LinkWords::Word::unknown};
}

void Reactor::comes_back(Stream stream, const LinkWords& answer, const LinkWords& theirs) {
  const bool lane = answer.word == LinkWords::Word::lane;
  if (!lane && answer.word != LinkWords::Word::again) return;
  for (const auto& c : connections())
    if (c->is_link(theirs.id))
      return lane ? c->joins(std::move(stream), theirs) : c->comes_back(std::move(stream), theirs);
}

void Reactor::listens(int fd, bool on) {
  std::lock_guard lock(mutex_);
  if (on)
    listeners_.push_back(fd);
  else
    std::erase(listeners_, fd);
  listeners_changed_.fetch_add(1, std::memory_order_relaxed);
}

uint16_t Reactor::port_beside(int fd) const {
  std::lock_guard lock(mutex_);
  for (const int listener : listeners_)
    if (const uint16_t port = net::port_beside(listener, fd)) return port;
  return 0;
}

PeerInfo Reactor::self() const {
  std::lock_guard lock(mutex_);
  return options_.self;
}

void Reactor::set_self(const PeerInfo& self) {
  check_peer_info(self);
  std::lock_guard lock(mutex_);
  options_.self = self;
}

void Reactor::add(const std::shared_ptr<SocketConnection>& connection) {
  std::lock_guard lock(mutex_);
  connections_.emplace(connection.get(), connection);
  if (!std::exchange(ticking_, true))
    upkeep.post([this] {
      last_tick_ = watched_since_ = now();
      schedule_tick();
    });
}

void Reactor::remove(SocketConnection* connection) {
  std::shared_ptr<SocketConnection> let_go;
  const SentCounts sent = connection->sent();
  std::lock_guard lock(mutex_);
  const auto it = connections_.find(connection);
  if (it == connections_.end()) return;
  let_go = std::move(it->second);
  sent_.add(sent);
  connections_.erase(it);
  removed_.notify_all();
}

std::vector<std::shared_ptr<SocketConnection>> Reactor::connections() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<SocketConnection>> all;
  all.reserve(connections_.size());
  for (const auto& [key, c] : connections_) all.push_back(c);
  return all;
}

SentCounts Reactor::sent() const {
  SentCounts all;
  std::vector<std::shared_ptr<SocketConnection>> living;
  {
    std::lock_guard lock(mutex_);
    all = sent_;
    for (const auto& [key, c] : connections_) living.push_back(c);
  }
  for (const auto& c : living) all.add(c->sent());
  return all;
}

bool Reactor::was_away(TimePoint before, TimePoint now) {
  if (now - before < kComputes) return false;
  // Again soon after the last time: others go on computing.
  const TimePoint until{Duration(contended_until_.load(std::memory_order_relaxed))};
  const Duration last{contended_for_.load(std::memory_order_relaxed)};
  const Duration first = yields() ? kCrowded : kContended, most = yields() ? kCrowdedMost : kContendedMost;
  const Duration next = now - until < 4 * last ? std::min(2 * last, most) : first;
  contended_for_.store(next.count(), std::memory_order_relaxed);
  contended_until_.store((now + next).time_since_epoch().count(), std::memory_order_relaxed);
  return true;
}

bool Reactor::may_move(TimePoint now) {
  int64_t last = moved_at_.load(std::memory_order_relaxed);
  const int64_t at = now.time_since_epoch().count();
  return at - last >= kStay.count() && moved_at_.compare_exchange_strong(last, at, std::memory_order_relaxed);
}

// True: not yet asleep. A short turn, so that sockets, times and tasks are looked at in between.
bool Reactor::poll() {
  TimePoint now = this->now();
  const TimePoint turn = now + kPollTurn;
  for (bool placed = false;;) {
    bool came = came_.exchange(false, std::memory_order_relaxed);
    for (const auto& c : polled_) came |= c->poll();
    const TimePoint before = std::exchange(now, this->now());
    if (came) {
      busy_ = may_poll(now) && now - last_came_ < kSoon;
      last_came_ = now;
    } else if (busy_ && was_away(before, now)) {
      break;
    }
    if (!busy_ || now - last_came_ >= options_.limits.polling) break;
    if (!came && waiting_callers.load(std::memory_order_relaxed) != 0) break;
    if (polled_.empty() || now >= turn) return true;
    if (came || std::exchange(placed, true)) continue;
    for (const auto& c : polled_)
      if (c->keep_apart(now, now)) now = this->now();
    rest();
  }
  for (const auto& c : std::exchange(polled_, {})) c->stop_polling();
  return false;
}

void Reactor::schedule_tick() {
  upkeep.at(now() + tick_, [this] { tick(); });
}

void Reactor::tick() {
  const TimePoint at = now();
  // This process itself was stopped or starved: what peers sent meanwhile may be anywhere. Begin to watch
  // anew.
  if (at - last_tick_ > 2 * tick_ + options_.limits.dead_after / 4) watched_since_ = at;
  last_tick_ = at;
  const auto all = connections();
  for (const auto& c : all) c->keep_alive(at, watched_since_);
  trim_cpu_memory(Clock::system().now());
  std::lock_guard lock(mutex_);
  ticking_ = !connections_.empty();
  if (ticking_) schedule_tick();
}

void Reactor::warn(const std::string& text, Handshake::Refusal reason) {
  uint64_t left_out = 0;
  {
    std::lock_guard lock(warn_mutex_);
    Warned& w = warned_[reason];
    const TimePoint at = now();
    if (at - w.window >= std::chrono::seconds(1)) {
      left_out = w.left_out;
      w = {at, 0, 0};
    }
    if (++w.given > kWarningsPerSecond) {
      ++w.left_out;
      return;
    }
  }
  if (left_out) log::warning(fmt::format("[net] {} more warnings were left out", left_out));
  log::warning(text);
}

void Reactor::shut_down() {
  shutting_down_ = true;
  const TimePoint deadline = now() + kShutDown;
  for (const auto& c : connections()) c->close("the transport was shut down");
  {
    Lock lock(mutex_);
    removed_.wait_until(lock.native(), deadline, [&] { return connections_.empty(); });
  }
  upkeep.stop();  // fails what is still connecting by posting to delivery
  delivery.post([this] {
    for (const auto& c : connections()) c->abandon();
  });
  delivery.stop();
  polled_.clear();  // they own this
}

}  // namespace troupe::internal::net
