// What a worker keeps with a connection: whether it is refused, and what is being handled of it.
#pragma once
#include <atomic>
#include <memory>

#include "net/transport.h"
#include "net/wire/wire.h"

namespace troupe::internal::actors {

/// The tag of a connection. Plain words, so that another thread can ask at any time; what they name is looked
/// up then.
class ConnectionState {
 public:
  explicit ConnectionState(bool refused = false) : refused_(refused) {}
  /// Null for a connection that the worker does not know yet.
  static ConnectionState* of(const net::Connection& connection) {
    return static_cast<ConnectionState*>(connection.tag());
  }
  static bool refused(const net::Connection& connection) {
    const ConnectionState* h = of(connection);
    return h && h->refused_;
  }

  /// By whoever delivers the message.
  void begins(const net::Packet& packet) {
    const auto* call = std::get_if<net::Call>(&packet);
    creator_.store(call ? call->target.creator : kNoWorker, std::memory_order_relaxed);
    number_.store(call ? call->target.number : 0, std::memory_order_relaxed);
    method_.store(call ? call->method : 0, std::memory_order_relaxed);
  }
  /// Whom the last call was for: number 0 for a service, method 0 if it was no call. From any thread; between
  /// two messages it may be a mixture.
  ObjectId target(WorkerId here) const {
    return {here, creator_.load(std::memory_order_relaxed), number_.load(std::memory_order_relaxed)};
  }
  uint64_t method() const { return method_.load(std::memory_order_relaxed); }

 private:
  const bool refused_;
  std::atomic<WorkerId> creator_{kNoWorker};
  std::atomic<uint64_t> number_{0}, method_{0};
};

}  // namespace troupe::internal::actors
