#include "net/sim/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/base/thread.h"
#include "net/sim/sim_connection.h"

namespace troupe::internal::net::sim {

World::World(uint64_t seed, bool virtual_time) : virtual_time(virtual_time), random_(seed) {}

// ---- virtual time

void World::at(TimePoint time, std::function<void()> f) {
  std::lock_guard lock(mutex_);
  if (stopped_) return;
  events_.push_back({std::max(time, manual_.now()), events_made_++, std::move(f)});
  std::push_heap(events_.begin(), events_.end());
}

bool World::step(TimePoint limit) {
  std::function<void()> f;
  {
    std::lock_guard lock(mutex_);
    if (events_.empty() || events_.front().time > limit) return false;
    std::pop_heap(events_.begin(), events_.end());
    manual_.advance(events_.back().time - manual_.now());
    f = std::move(events_.back().f);
    events_.pop_back();
  }
  f();
  return true;
}

void World::advance_to(TimePoint time) {
  std::lock_guard lock(mutex_);
  if (time > manual_.now()) manual_.advance(time - manual_.now());
}

bool World::pending() const {
  std::lock_guard lock(mutex_);
  return !events_.empty();
}

Route World::route(SimLink& link, size_t bytes, bool control) {
  std::lock_guard lock(mutex_);
  const Faults& f = link.faults ? *link.faults : faults_;
  Route route;
  TimePoint ready = manual_.now();
  if (f.bytes_per_second > 0) {
    const double seconds = std::min(static_cast<double>(bytes) / f.bytes_per_second, 1e8);
    link.busy_until = std::max(link.busy_until, ready) + Duration(static_cast<int64_t>(seconds * 1e9));
    ready = link.busy_until;
  }
  const auto jitter = static_cast<uint64_t>(f.jitter.count());
  route.arrival = ready + f.delay + Duration(jitter ? static_cast<int64_t>(random_.below(jitter)) : 0);
  if (control) return route;
  const auto happens = [&](double probability) { return probability > 0 && random_.uniform() < probability; };
  route.drop = happens(f.drop);
  route.duplicate = happens(f.duplicate);
  route.reorder = happens(f.reorder);
  if (route.drop) link.dropped++, route.duplicate = route.reorder = false;
  route.numbered = f.resend > Duration(0);
  if (route.numbered && std::exchange(route.drop, false)) route.arrival += f.resend;
  if (route.duplicate) link.duplicated++;
  return route;
}

// ---- links

SimLink& World::link(const std::string& from, const std::string& to) {
  std::lock_guard lock(mutex_);
  auto& link = links_[{from, to}];
  if (!link) {
    link = std::make_unique<SimLink>();
    link->from = from;
    link->to = to;
  }
  return *link;
}

const SimLink* World::find_link(const std::string& from, const std::string& to) const {
  std::lock_guard lock(mutex_);
  auto it = links_.find({from, to});
  return it == links_.end() ? nullptr : it->second.get();
}

LinkCounters World::all_counters() const {
  std::lock_guard lock(mutex_);
  LinkCounters sum;
  for (const auto& [names, link] : links_) {
    const LinkCounters c = link->counters();
    sum.messages += c.messages;
    sum.bytes += c.bytes;
    sum.dropped += c.dropped;
    sum.duplicated += c.duplicated;
    sum.reordered += c.reordered;
  }
  return sum;
}

void World::set_faults(const Faults& faults) {
  std::lock_guard lock(mutex_);
  faults_ = faults;
  for (auto& [names, link] : links_) link->faults.reset();
}

void World::set_faults(SimLink& link, const Faults& faults) {
  std::lock_guard lock(mutex_);
  link.faults = faults;
}

// ---- nodes

void World::add(const std::shared_ptr<SimNode>& node) {
  std::lock_guard lock(mutex_);
  auto& entry = nodes_[node->name()];
  if (!entry.expired())
    throw_invalid(fmt::format("[net] the network has a node \"{}\" already", node->name()));
  entry = node;
}

void World::remove(const SimNode& node) {
  std::lock_guard lock(mutex_);
  auto it = nodes_.find(node.name());
  if (it != nodes_.end() && it->second.lock().get() == &node) nodes_.erase(it);
}

std::shared_ptr<SimNode> World::find(const std::string& name) const {
  std::lock_guard lock(mutex_);
  auto it = nodes_.find(name);
  return it == nodes_.end() ? nullptr : it->second.lock();
}

// ---- connecting

void World::connect(const std::shared_ptr<SimNode>& from, const std::string& to, bool retry,
                    ConnectionPromise promise) {
  Waiter waiter{next_id(), from, to, std::move(promise), later(from->limits().connect)};
  if (!virtual_time) return attempt(std::move(waiter), retry);
  const auto number = waiter.number;
  waiter.travelling = true;
  if (!enlist(std::move(waiter))) return;
  at(route(link(from->name(), to), 0, true).arrival, [this, number, retry] {
    for (auto& w : take_waiters([&](const Waiter& w) { return w.number == number; })) {
      w.travelling = false;
      attempt(std::move(w), retry);
    }
  });
}

void World::attempt(Waiter waiter, bool retry) {
  const auto nobody = [&](const std::string& why) {
    waiter.promise.fail(
        Error(ErrorKind::disconnected, fmt::format("[net] cannot connect to sim:{}: {}", waiter.to, why))
            .with_worker(waiter.to));
  };
  if (waiter.from->leaving() || waiter.from->silent) return nobody("this side has left the network");
  auto server = find(waiter.to);
  const bool cut = link(waiter.from->name(), waiter.to).cut;
  if (!server || !server->listening || cut) {
    if (clock().now() < waiter.deadline && (retry || (cut && virtual_time))) return wait(std::move(waiter));
    return nobody(cut ? "it is cut off" : "nobody listens there");
  }
  if (server->token() != waiter.from->token()) {
    waiter.promise.fail(
        Error(ErrorKind::invalid, fmt::format("[net] sim:{} refused the token of {}: it is another cluster's",
                                              waiter.to, waiter.from->name())));
    return;
  }
  if (!SimConnection::join(waiter.from, server, waiter.promise)) nobody("it is leaving");
}

bool World::enlist(Waiter waiter) {
  {
    std::lock_guard lock(mutex_);
    if (!stopped_) {
      waiter.taken.reset();
      waiting_.push_back(std::move(waiter));
      return true;
    }
  }
  waiter.promise.fail(Error(ErrorKind::disconnected, "[net] the network is gone"));
  return false;
}

void World::wait(Waiter waiter) {
  const auto number = waiter.number;
  const TimePoint deadline = waiter.deadline;
  const auto from = waiter.from;
  const auto to = waiter.to;
  if (!enlist(std::move(waiter))) return;
  if (virtual_time) return at(deadline, [this, number] { expire(number); });
  try {
    std::lock_guard lock(mutex_);
    if (!stopped_ && !deadlines_.joinable())
      deadlines_ = start_thread("net", [self = shared_from_this()] { self->watch_deadlines(); });
    waiting_changed_.notify_all();
  } catch (const Error& e) {
    for (auto& w : take_waiters([&](const Waiter& w) { return w.number == number; })) w.promise.fail(e);
    return;
  }
  // Another thread may have begun to listen, or ended this side, just before we were on the list.
  const auto server = find(to);
  if (!from->leaving() && !(server && server->listening && !link(from->name(), to).cut)) return;
  for (auto& w : take_waiters([&](const Waiter& w) { return w.number == number; }))
    attempt(std::move(w), true);
}

std::vector<World::Waiter> World::take_waiters(const std::function<bool(const Waiter&)>& which) {
  std::lock_guard lock(mutex_);
  auto taken =
      std::stable_partition(waiting_.begin(), waiting_.end(), [&](const Waiter& w) { return !which(w); });
  std::vector<Waiter> out(std::make_move_iterator(taken), std::make_move_iterator(waiting_.end()));
  waiting_.erase(taken, waiting_.end());
  for (Waiter& w : out) w.taken = std::make_unique<SimNode::Callback>(*w.from);
  return out;
}

void World::expire(uint64_t number) {
  for (auto& w : take_waiters([&](const Waiter& w) { return w.number == number; }))
    attempt(std::move(w), false);
}

void World::watch_deadlines() {
  Lock lock(mutex_);
  while (!stopped_) {
    const auto earlier = [](const Waiter& a, const Waiter& b) { return a.deadline < b.deadline; };
    const auto first = std::min_element(waiting_.begin(), waiting_.end(), earlier);
    if (first == waiting_.end()) {
      waiting_changed_.wait(lock.native());
    } else if (first->deadline <= clock().now()) {
      const auto number = first->number;
      lock.unlock();
      expire(number);
      lock.lock();
    } else {
      waiting_changed_.wait_until(lock.native(), TimePoint(first->deadline));
    }
  }
}

void World::retry_waiting(const std::string& name) {
  for (auto& w : take_waiters([&](const Waiter& w) { return w.to == name && !w.travelling; }))
    attempt(std::move(w), true);
}

void World::fail_waiting(const SimNode* from, const std::string& why) {
  for (auto& w : take_waiters([&](const Waiter& w) { return !from || w.from.get() == from; }))
    w.promise.fail(
        Error(ErrorKind::disconnected, fmt::format("[net] cannot connect to sim:{}: {}", w.to, why)));
}

void World::stop() {
  std::vector<Event> events;  // destroyed outside the lock: they hold connections
  std::thread watcher;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    events.swap(events_);
    watcher.swap(deadlines_);
    waiting_changed_.notify_all();
  }
  fail_waiting(nullptr, "the network is gone");
  if (!watcher.joinable()) return;
  if (watcher.get_id() == std::this_thread::get_id())
    watcher.detach();
  else
    watcher.join();
}

}  // namespace troupe::internal::net::sim
