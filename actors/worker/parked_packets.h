// Packets whose tensors come beside them (net/wire/tensor_ways.h) wait here until these are there, and what
// came behind them from the same worker waits, too, so that all keep their order.
#pragma once
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "actors/calls/traffic.h"
#include "actors/runtime/job_queue.h"
#include "core/base/mutex.h"
#include "net/transport.h"
#include "net/wire/wire.h"

namespace troupe::internal::actors {

/// Thread-safe.
class ParkedPackets {
 public:
  /// Takes a packet in, on a thread of the pool, one at a time for each worker.
  using Take = std::function<void(net::Connection&, net::Packet&&)>;
  ParkedPackets(Runtime& runtime, Traffic& traffic, Take take)
      : runtime_(runtime), traffic_(traffic), take_(std::move(take)) {}

  /// Whether the packet is put aside; else the caller takes it in. `sender.arrival`: what it waits for, if
  /// not null.
  bool hold(net::Connection& connection, net::Packet& packet, const net::Sender& sender);
  size_t count() const { return count_.load(std::memory_order_relaxed); }
  /// Nothing is told any more, and nothing arrives: waits for what is being taken in, and lets the rest go.
  void finish();

 private:
  struct Parked {
    std::shared_ptr<net::Connection> connection;
    net::Packet packet;
    std::shared_ptr<net::Arrival> arrival;
    bool is_there = false;
    std::optional<Error> error = {};
    Traffic::Busy busy;
  };
  struct Row {
    explicit Row(Runtime& runtime) : jobs(runtime) {}
    std::deque<std::shared_ptr<Parked>> packets;
    bool takes = false;  // one of them, or is about to
    JobQueue jobs;       // last: they use the others
  };

  void there(Row& row, Parked& parked, const std::optional<Error>& error);
  void take(Row& row);

  Runtime& runtime_;
  Traffic& traffic_;
  const Take take_;
  std::atomic<size_t> count_{0};  // of all rows, and of those that are being taken in
  Mutex mutex_;
  std::map<WorkerId, std::unique_ptr<Row>> rows_ TROUPE_GUARDED_BY(mutex_);
};

}  // namespace troupe::internal::actors
