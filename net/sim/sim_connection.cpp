// Connections: sending, and every way to end.
#include "net/sim/sim_connection.h"

#include <fmt/format.h>

#include <cstring>

namespace troupe::internal::net::sim {
namespace {

// Memory of a device is shared until somebody writes: actors of one process use the same one.
Buffer shared(const Buffer& b) {
  constexpr size_t kAlignment = 64;
  const size_t from = b.offset / kAlignment * kAlignment;
  return {b.storage->share(from, b.offset - from + b.size), b.offset - from, b.size};
}

std::vector<Buffer> copies_of(const std::vector<Buffer>& buffers) {
  std::vector<Buffer> out;
  out.reserve(buffers.size());
  for (const auto& b : buffers) {
    if (b.storage && !b.storage->device().is_cpu()) {
      out.push_back(shared(b));
      continue;
    }
    auto storage = Storage::allocate(b.size);
    if (b.pinned) b.pinned->arrived(b.size);
    if (b.size) std::memcpy(storage->data(), b.data(), b.size);
    out.push_back({std::move(storage), 0, b.size});
  }
  return out;
}

}  // namespace

std::string silent_for(Duration silence) {
  return fmt::format("silent for {} ms", silence.count() / 1'000'000);
}

Error disconnected(const std::string& peer, const std::string& why) {
  return Error(ErrorKind::disconnected, fmt::format("[net] connection to {} closed: {}", peer, why))
      .with_worker(peer);
}

SimConnection::SimConnection(std::shared_ptr<SimNode> node, std::shared_ptr<SimNode> peer_node)
    : id_(node->world().next_id()),
      node_(std::move(node)),
      peer_node_(std::move(peer_node)),
      peer_info_(peer_node_->self()),
      out_(node_->world().link(node_->name(), peer_node_->name())),
      in_(node_->world().link(peer_node_->name(), node_->name())) {}

bool SimConnection::join(const std::shared_ptr<SimNode>& client, const std::shared_ptr<SimNode>& server,
                         ConnectionPromise promise) {
  std::shared_ptr<SimConnection> near(new SimConnection(client, server)),
      far(new SimConnection(server, client));
  near->opened_ = true;
  near->peer_ = far;
  far->peer_ = near;
  if (!client->add(near->id_, near)) return false;
  if (!server->add(far->id_, far)) {
    client->remove(near->id_);
    return false;
  }
  InboxItem item;
  item.kind = InboxItem::Kind::accepted;
  item.promise = std::move(promise);
  far->push(std::move(item), server->world().clock().now(), false, false);
  return true;
}

// ---- the user's side

void SimConnection::send(Message message) {
  if (auto wrong = over_limits(message, node_->limits()); !wrong.empty())
    throw_invalid(fmt::format("[net] message to {} refused: {}", who(), wrong));
  if (auto* observer = node_->world().observer) observer->sending(node_->name(), peer_node_->name(), message);
  {
    std::lock_guard lock(mutex_);
    if (state_ != State::open) throw disconnected(who(), why_);
  }
  if (node_->leaving()) throw disconnected(who(), "this side has left the network");
  InboxItem item;
  item.bytes = message.header.size() * 8 + message.buffer_bytes();
  auto other = peer_.lock();
  if (!other) throw disconnected(who(), "it is gone");
  bool room = other->has_room(item.bytes);
  if (room) {
    item.message = {.header = std::move(message.header), .buffers = copies_of(message.buffers)};
    room = push_over_link(std::move(item), true);
  }
  if (room && !message.buffers.empty()) node_->count(message);
  if (!room)
    throw_error(ErrorKind::overloaded, fmt::format("[net] {} bytes wait for {}; the limit is {}",
                                                   queued_bytes(), who(), node_->limits().queue_bytes));
}

size_t SimConnection::queued_bytes() const {
  auto other = peer_.lock();
  if (!other) return 0;
  std::lock_guard lock(other->mutex_);
  return other->queued_;
}

Future<void> SimConnection::writable() {
  Promise<void> promise;
  auto other = peer_.lock();
  bool room = true;
  if (other) {
    std::lock_guard lock(other->mutex_);
    room = other->queued_ <= node_->limits().queue_bytes / 2;
    if (!room) other->waiting_for_room_.push_back(promise);
  }
  {
    // After the other lock, never inside it: a side that ends now saw the promise, or is seen to have ended.
    std::lock_guard lock(mutex_);
    if (state_ != State::open) return Future<void>::failed(disconnected(who(), why_));
  }
  if (room) promise.set();
  return promise.future();
}

void SimConnection::close(const std::string& reason) { end(reason, true); }

// ---- the network's side

bool SimConnection::has_room(size_t bytes) const {
  std::lock_guard lock(mutex_);
  return queued_ == 0 || queued_ + bytes <= peer_node_->limits().queue_bytes;
}

// Puts an item into this inbox. False only if `check_room` and there is none.
bool SimConnection::push(InboxItem item, TimePoint when, bool overtake, bool check_room) {
  std::unique_lock lock(mutex_);
  if (ended_ || state_ != State::open) {
    lock.unlock();
    std::deque<InboxItem> lost;
    lost.push_back(std::move(item));
    discard(std::move(lost));
    return true;
  }
  if (check_room && queued_ > 0 && queued_ + item.bytes > peer_node_->limits().queue_bytes) return false;
  queued_ += item.bytes;
  if (item.kind == InboxItem::Kind::closed) ended_ = true;
  if (overtake && !inbox_.empty() && inbox_.back().kind == InboxItem::Kind::message) {
    in_.reordered++;
    inbox_.insert(inbox_.end() - 1, std::move(item));
  } else {
    inbox_.push_back(std::move(item));
  }
  last_arrival_ = std::max(last_arrival_, when);
  schedule(std::move(lock), last_arrival_);
  return true;
}

// Sends an item to the other end, with whatever the link does to it.
bool SimConnection::push_over_link(InboxItem item, bool check_room) {
  auto other = peer_.lock();
  if (!other || node_->silent) {
    std::deque<InboxItem> lost;
    lost.push_back(std::move(item));
    return discard(std::move(lost)), true;
  }
  const bool control = item.kind != InboxItem::Kind::message;
  const size_t bytes = item.bytes;
  if (!node_->world().virtual_time) {
    if (!other->push(std::move(item), {}, false, check_room)) return false;
    if (!control) out_.messages++, out_.bytes += bytes;
    return true;
  }
  if (!control) out_.messages++, out_.bytes += bytes;
  if (out_.cut) {
    if (!control) out_.dropped++;
    std::deque<InboxItem> lost;
    lost.push_back(std::move(item));
    discard(std::move(lost));
    other->mark_lost();
    if (!control) mark_lost();
    return true;
  }
  const Route route = node_->world().route(out_, bytes, control);
  if (route.drop) {
    InboxItem broken;
    broken.kind = InboxItem::Kind::closed;
    broken.reason = "a message was lost";
    broken.tell_peer = true;
    return other->push(std::move(broken), route.arrival, false, false);
  }
  std::optional<InboxItem> twin;
  if (route.numbered && !control) item.number = ++last_sent_;
  if (route.duplicate)
    twin.emplace(), twin->bytes = bytes, twin->number = item.number,
        twin->message = {.header = item.message.header, .buffers = copies_of(item.message.buffers)};
  other->push(std::move(item), route.arrival, route.reorder, false);
  if (twin) other->push(std::move(*twin), route.arrival, false, false);
  return true;
}

void SimConnection::end(const std::string& reason, bool tell_peer) {
  std::deque<InboxItem> lost;
  std::vector<Promise<void>> waiting;
  auto other = peer_.lock();
  bool silent = false;
  {
    std::unique_lock lock(mutex_);
    if (state_ != State::open) return;
    state_ = State::closing;
    why_ = reason;
    ended_ = true;
    lost.swap(inbox_);
    queued_ = 0;
    silent = !announced_;  // nobody knows this connection yet
    if (silent) {
      state_ = State::closed;
    } else {
      InboxItem item;
      item.kind = InboxItem::Kind::closed;
      item.reason = reason;
      inbox_.push_back(std::move(item));
    }
  }
  if (other) {
    std::lock_guard lock(other->mutex_);
    waiting.swap(other->waiting_for_room_);
  }
  discard(std::move(lost));
  for (auto& w : waiting) w.fail(disconnected(who(), reason));
  if (tell_peer) close_peer("closed by it: " + reason);
  if (silent) return detach();
  schedule(std::unique_lock(mutex_), node_->world().clock().now());
}

void SimConnection::mark_lost() {
  {
    std::lock_guard lock(mutex_);
    ended_ = true;  // no gaps: after a lost message nothing arrives
    if (std::exchange(marked_lost_, true)) return;
  }
  const Duration silence = node_->limits().dead_after;
  node_->world().after(silence,
                       [self = shared_from_this(), silence] { self->end(silent_for(silence), false); });
}

void SimConnection::shut(const std::string& reason) {
  std::deque<InboxItem> lost;
  bool was_open = false;
  {
    std::lock_guard lock(mutex_);
    was_open = state_ == State::open;
    if (was_open) state_ = State::closing, why_ = reason;
    ended_ = true;
    lost.swap(inbox_);
    queued_ = 0;
  }
  discard(std::move(lost));
  if (was_open) close_peer("closed by it: " + reason);
}

void SimConnection::close_peer(const std::string& reason) {
  InboxItem item;
  item.kind = InboxItem::Kind::closed;
  item.reason = reason;
  push_over_link(std::move(item), false);
}

void SimConnection::finish(const std::string& reason, bool say) {
  std::vector<Promise<void>> waiting;
  if (auto other = peer_.lock()) {
    std::lock_guard lock(other->mutex_);
    waiting.swap(other->waiting_for_room_);
  }
  bool owed = false;
  std::deque<InboxItem> lost;
  {
    std::lock_guard lock(mutex_);
    owed = announced_ && state_ != State::closed;
    state_ = State::closed;
    if (why_.empty()) why_ = reason;
    ended_ = true;
    lost.swap(inbox_);
    queued_ = 0;
  }
  discard(std::move(lost));
  const Error why = disconnected(who(), why_);
  for (auto& w : waiting) w.fail(why);
  detach();
  if (owed && say) node_->events().on_closed(*this, why);
}

std::string SimConnection::who() const { return peer_info_.name.empty() ? address() : peer_info_.name; }

void SimConnection::detach() { node_->remove(id_); }

void SimConnection::discard(std::deque<InboxItem>&& items) {
  for (auto& item : items)
    if (item.promise)
      item.promise->fail(Error(ErrorKind::disconnected, "[net] the connection ended before it was ready"));
}

}  // namespace troupe::internal::net::sim
