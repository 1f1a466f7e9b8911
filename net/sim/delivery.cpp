// Connections: who delivers, and what arriving does.
#include <fmt/format.h>

#include "core/base/call_frame.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/graph/autocast.h"
#include "net/sim/sim_connection.h"

namespace troupe::internal::net::sim {
namespace {

// The ends that this thread has to drain. A delivery inside a delivery waits for its turn here, so that
// handlers that answer each other do not grow the stack, and none is entered while it runs.
void trampoline(std::shared_ptr<SimConnection> end) {
  struct OfThread {
    std::deque<std::shared_ptr<SimConnection>> ready;
    bool running = false;
  };
  thread_local OfThread here;
  auto& ready = here.ready;
  ready.push_back(std::move(end));
  if (std::exchange(here.running, true)) return;
  CallFrameScope no_frame{CallFrame{}};  // the receiver's code does not run on behalf of the sender
  const ThreadModeScope recording({true, Autocast::off});
  while (!ready.empty()) {
    auto next = std::move(ready.front());
    ready.pop_front();
    if (next->drain(64)) ready.push_back(std::move(next));
  }
  here.running = false;
}

}  // namespace

std::string over_limits(const Message& m, const Limits& limits) {
  const size_t header = m.header.size() * 8;
  if (header > limits.header_bytes)
    return fmt::format("a header of {} bytes; the limit is {}", header, limits.header_bytes);
  if (m.buffers.size() > limits.buffers)
    return fmt::format("{} buffers; the limit is {}", m.buffers.size(), limits.buffers);
  size_t total = 0;
  for (const auto& b : m.buffers) {
    if (b.size > limits.buffer_bytes)
      return fmt::format("a buffer of {} bytes; the limit is {}", b.size, limits.buffer_bytes);
    total += b.size;
    if (total > limits.message_bytes)
      return fmt::format("buffers of more than {} bytes, the limit of a message", limits.message_bytes);
  }
  return {};
}

void SimConnection::schedule(std::unique_lock<internal::Mutex> lock, TimePoint when) {
  if (node_->world().virtual_time) {
    lock.unlock();
    node_->world().at(when, [self = shared_from_this()] { self->deliver_next(); });
    return;
  }
  if (std::exchange(draining_, true)) return;
  lock.unlock();
  trampoline(shared_from_this());
}

bool SimConnection::drain(int most) {
  for (int i = 0; i < most; ++i)
    if (!deliver_next()) return false;
  return true;
}

// The callback is entered before the item is taken: once SimNode::wait_for_callbacks() returns, nothing is
// halfway.
bool SimConnection::deliver_next() {
  SimNode::Callback callback(*node_);
  std::optional<std::deque<InboxItem>> lost;  // an empty deque takes memory, too
  std::vector<Promise<void>> waiting;
  std::optional<InboxItem> item;
  {
    std::lock_guard lock(mutex_);
    if (!callback) {
      lost.emplace().swap(inbox_);
      queued_ = 0;
    }
    if (inbox_.empty()) {
      draining_ = false;
    } else {
      item = std::move(inbox_.front());
      inbox_.pop_front();
      queued_ -= item->bytes;
      if (queued_ <= peer_node_->limits().queue_bytes / 2) waiting.swap(waiting_for_room_);
      if (item->kind == InboxItem::Kind::accepted || item->kind == InboxItem::Kind::connected)
        announced_ = true;
      if (item->kind == InboxItem::Kind::closed) {
        state_ = State::closed;
        if (why_.empty()) why_ = item->reason;
      }
    }
  }
  if (lost) discard(std::move(*lost));
  for (auto& w : waiting) w.set();
  if (!item) return false;
  if (item->number)
    deliver_in_order(std::move(*item));
  else
    dispatch(std::move(*item));
  return true;
}

void SimConnection::deliver_in_order(InboxItem item) {
  if (lost_on_the_way(item) || item.number <= last_delivered_) return;
  early_.emplace(item.number, std::move(item));  // without effect if it came twice
  while (!early_.empty() && early_.begin()->first == last_delivered_ + 1) {
    ++last_delivered_;
    dispatch(std::move(early_.extract(early_.begin()).mapped()));
  }
}

bool SimConnection::lost_on_the_way(const InboxItem& item) {
  if (!node_->world().virtual_time || !in_.cut || item.kind != InboxItem::Kind::message) return false;
  in_.dropped++;
  mark_lost();
  if (auto other = peer_.lock()) other->mark_lost();
  return true;
}

void SimConnection::dispatch(InboxItem item) {
  if (lost_on_the_way(item)) return;
  const auto self = shared_from_this();
  try {
    switch (item.kind) {
      case InboxItem::Kind::accepted: {
        InboxItem answer;  // ahead of whatever the callback sends
        answer.kind = InboxItem::Kind::connected;
        answer.promise = std::move(item.promise);
        push_over_link(std::move(answer), false);
        return node_->events().on_accepted(self);
      }
      case InboxItem::Kind::connected:
        item.promise->set(self);
        return;
      case InboxItem::Kind::message:
        if (auto wrong = over_limits(item.message, node_->limits()); !wrong.empty())
          return end("it sent " + wrong, true);
        if (auto* observer = node_->world().observer) {
          observer->arriving(peer_node_->name(), node_->name(), item.message);
          if (node_->leaving()) return;
          node_->events().on_message(*this, std::move(item.message));
          return observer->handled(peer_node_->name(), node_->name());
        }
        return node_->events().on_message(*this, std::move(item.message));
      case InboxItem::Kind::closed: {
        std::vector<Promise<void>> waiting;
        auto other = peer_.lock();
        if (other) {
          std::lock_guard lock(other->mutex_);
          waiting.swap(other->waiting_for_room_);
        }
        const Error why = disconnected(who(), item.reason);
        for (auto& w : waiting) w.fail(why);
        detach();
        if (other && item.tell_peer) other->end(item.reason, false);
        bool known = false;
        {
          std::lock_guard lock(mutex_);
          known = announced_;
        }
        if (known) node_->events().on_closed(*this, why);
        return;
      }
    }
  } catch (...) {
    const Error e = current_error();
    log::error(fmt::format("[net] a handler of {} threw: {}", node_->name(), e.what()));
    end(fmt::format("its handler threw: {}", e.message()), true);
  }
}

}  // namespace troupe::internal::net::sim
