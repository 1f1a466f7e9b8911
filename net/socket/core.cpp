#include "net/socket/core.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/log.h"
#include "net/socket/connection.h"

namespace troupe::net {
namespace {

constexpr int kWarningsPerSecond = 10;
constexpr Duration kLinger = std::chrono::seconds(1);

}  // namespace

SocketCore::SocketCore(TransportOptions options, Events& events)
    : options_(std::move(options)),
      events_(events),
      tick_(std::max<Duration>(std::min(options_.limits.heartbeat, options_.limits.dead_after / 4),
                               std::chrono::milliseconds(1))) {}

PeerInfo SocketCore::self() const {
  std::lock_guard lock(mutex_);
  return options_.self;
}

void SocketCore::set_self(const PeerInfo& self) {
  check_peer_info(self);
  std::lock_guard lock(mutex_);
  options_.self = self;
}

void SocketCore::add(const std::shared_ptr<SocketConnection>& connection) {
  std::lock_guard lock(mutex_);
  connections_.emplace(connection.get(), connection);
  if (!std::exchange(ticking_, true))
    upkeep.post([this] {
      last_tick_ = watched_since_ = now();
      schedule_tick();
    });
}

void SocketCore::remove(SocketConnection* connection) {
  std::shared_ptr<SocketConnection> let_go;
  std::lock_guard lock(mutex_);
  const auto it = connections_.find(connection);
  if (it == connections_.end()) return;
  let_go = std::move(it->second);
  connections_.erase(it);
  removed_.notify_all();
}

std::vector<std::shared_ptr<SocketConnection>> SocketCore::connections() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<SocketConnection>> all;
  all.reserve(connections_.size());
  for (const auto& [key, c] : connections_) all.push_back(c);
  return all;
}

void SocketCore::schedule_tick() {
  upkeep.at(now() + tick_, [this] { tick(); });
}

void SocketCore::tick() {
  const TimePoint at = now();
  // This process itself was stopped or starved: what peers sent meanwhile may be anywhere. Begin to watch
  // anew.
  if (at - last_tick_ > 2 * tick_ + options_.limits.dead_after / 4) watched_since_ = at;
  last_tick_ = at;
  const auto all = connections();
  for (const auto& c : all) c->keep_alive(at, watched_since_);
  std::lock_guard lock(mutex_);
  ticking_ = !connections_.empty();
  if (ticking_) schedule_tick();
}

void SocketCore::warn(const std::string& text) {
  uint64_t suppressed = 0;
  {
    std::lock_guard lock(warn_mutex_);
    const TimePoint at = now();
    if (at - warn_window_ >= std::chrono::seconds(1)) {
      warn_window_ = at;
      warned_ = 0;
      suppressed = std::exchange(suppressed_, 0);
    }
    if (++warned_ > kWarningsPerSecond) {
      ++suppressed_;
      return;
    }
  }
  if (suppressed) log::warning(fmt::format("[net] {} more warnings were left out", suppressed));
  log::warning(text);
}

void SocketCore::shut_down() {
  shutting_down_ = true;
  const TimePoint deadline = now() + kLinger;
  for (const auto& c : connections()) c->close("the transport was shut down");
  {
    std::unique_lock lock(mutex_);
    removed_.wait_until(lock, deadline, [&] { return connections_.empty(); });
  }
  upkeep.stop();  // fails what is still connecting by posting to delivery
  delivery.post([this] {
    for (const auto& c : connections()) c->abandon();
  });
  delivery.stop();
}

}  // namespace troupe::net
