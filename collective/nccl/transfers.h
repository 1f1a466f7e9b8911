// Tensors of messages that go from a device of this worker to one of another, by the library and in turns.
// What cannot go so goes by the connection, as without a library.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "actors/worker/service.h"
#include "collective/nccl/device_operations.h"
#include "net/wire/tensor_ways.h"

namespace troupe::internal::collective {

/// One end of transfers between two devices.
struct TransferEnd {
  DevicePlace place = {};
  std::string why;                      ///< nothing comes so, if not empty
  std::vector<std::string> turns = {};  ///< where it listens for messages of turns
};

/// Worker to worker, before the first tensor of at least 1 MiB for that device: may its device send to mine?
/// (`end`: that of who asks.) Answered with the other end.
inline constexpr actors::Service<TransferEnd(TransferEnd end, std::string device)> kMeet{"collective.meet"};

/// Thread-safe.
class Transfers final : public net::TensorWays {
 public:
  /// Devices of others that a device of this worker exchanges tensors with: each takes memory of both.
  static constexpr size_t kMostPeers = 8;

  Transfers(actors::Worker& worker, DeviceOperations& devices);

  std::shared_ptr<net::Departure> leave(WorkerId to, const std::vector<Share>& shares) override;
  std::shared_ptr<net::Arrival> arrive(WorkerId from) override;
  /// Why tensors of `here` do not go to `there` of worker `to`, which says `its` of it; empty if they do, or
  /// would. Changes nothing.
  std::string why_not(WorkerId to, Device here, Device there, const DevicePlace& its) const;
  void worker_lost(WorkerId worker);
  /// What has begun is given up; then nothing is told.
  void stop();

  struct Counts {
    int64_t sent = 0, sent_bytes = 0, received = 0, received_bytes = 0;  ///< whole ones
  };
  Counts counts() const;

 private:
  class Leaving;
  class Arriving;
  // From one device to one of another worker.
  struct Route {
    enum { asked, open, closed } state = asked;
    WorkerDevice there = {};
    std::string why = {};  // it is closed
  };
  struct RouteKey {
    WorkerId to;
    Device here, there;
    bool operator<(const RouteKey& o) const {
      const auto all = [](const RouteKey& k) {
        return std::tuple(k.to, k.here.kind, k.here.index, k.there.kind, k.there.index);
      };
      return all(*this) < all(o);
    }
  };

  void ask(RouteKey key);
  void heard(const RouteKey& key, const Result<TransferEnd>& answer);
  void settle(const RouteKey& key, Route route);
  TransferEnd end_for(WorkerId other, const TransferEnd& its, const std::string& device);
  bool has_room(uint32_t device, WorkerDevice other) const TROUPE_REQUIRES(mutex_);
  bool take_room(uint32_t device, WorkerDevice other);
  std::string no_room(WorkerId worker, Device device) const;
  std::string name_of(WorkerId worker, Device device) const;
  DeviceOperation operation(WorkerId sender, uint32_t number, WorkerDevice from, WorkerDevice to,
                            const std::vector<Tensor>& tensors) const;

  actors::Worker& worker_;
  DeviceOperations& devices_;
  std::atomic<uint32_t> last_number_{0};
  std::atomic<int64_t> sent_{0}, sent_bytes_{0}, received_{0}, received_bytes_{0};
  mutable Mutex mutex_;
  std::map<RouteKey, Route> routes_ TROUPE_GUARDED_BY(mutex_);
  // Whose device sends to this one: device maps are one to one.
  std::map<std::pair<WorkerId, uint32_t>, WorkerDevice> senders_ TROUPE_GUARDED_BY(mutex_);
  std::map<uint32_t, std::set<WorkerDevice>> peers_ TROUPE_GUARDED_BY(mutex_);  // by own device
  actors::JobQueue asks_;  // last: its jobs use the others
};

/// From so many bytes of a message on, its tensors go so: TROUPE_NCCL_FROM, or 1 MiB.
size_t transfers_from();
/// For tests: workers of one process are taken for processes of their own, and tensors go so from that many
/// bytes on. Else memory of a process is used as it is.
void set_transfers_in_process(bool on, size_t from = 1);
bool transfers_in_process();

}  // namespace troupe::internal::collective
