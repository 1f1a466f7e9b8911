// Operations of this worker's devices together with those of others: their turns, the messages of turns, and
// the thread of each device.
//
// Progress of what a device has launched depends on turns, so these have connections and a thread of their
// own: that of the worker's connections may run a method that waits for the device.
#pragma once
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/membership/links.h"
#include "actors/runtime/job_queue.h"
#include "actors/worker/service.h"
#include "collective/nccl/device_thread.h"
#include "collective/nccl/launcher.h"
#include "collective/nccl/turns_packet.h"
#include "net/transport.h"

namespace troupe::internal::collective {

/// Worker to worker: where does it listen for messages of turns?
inline constexpr actors::Service<std::vector<std::string>()> kTurns{"collective.turns"};
/// Worker to the others of an operation between devices, of which the library says that it has failed: are
/// you there? Who is not is lost before the time for an answer is over.
inline constexpr actors::Service<void()> kThere{"collective.there", {.timeout = std::chrono::seconds(30)}};

/// What the other members of a group have to know of a device before they do an operation together.
struct DevicePlace {
  int64_t version = 0;  ///< of the library; 0: it cannot take part
  uint64_t gpu = 0;     ///< equal for one device in two processes
  uint32_t device = 0;
};

/// Thread-safe.
class DeviceOperations final : public net::Events {
 public:
  using Done = std::function<void(std::optional<Error>)>;
  using MakeTransport = std::function<std::unique_ptr<net::Transport>(net::Events&)>;

  explicit DeviceOperations(actors::Worker& worker);
  ~DeviceOperations() override;
  /// With the worker's secret. Without it no device takes part.
  void set_transport(MakeTransport make);
  /// None does from now on: why, and what would change it.
  void stay_out(std::string why);
  /// Where others connect to.
  std::vector<std::string> addresses();

  /// `why`: if its version is 0. The library is loaded, and nothing else changes.
  DevicePlace look_at(Device device, std::string& why);
  /// The same; and from then on the device is this worker's among those of the process.
  DevicePlace place_of(Device device, std::string& why);
  /// Where messages of turns for that worker go; else it is asked.
  void add_peer(WorkerId peer, const std::vector<std::string>& addresses);
  /// When `done` is called: by a thread of the pool; or by a thread that must not be held up, in no time.
  enum class Told { later, at_once };
  /// Once for each operation, unless refuse() was called. The calling thread's stream has been asked for the
  /// inputs. `done` is called once.
  void begin(const DeviceOperation& operation, Device device, DeviceWork work, Done done,
             Told told = Told::later);
  /// In place of begin(), of an operation that all its members call.
  void refuse(const DeviceOperation& operation, Device device, const Error& why);
  /// It is not wanted any more; if its time is over it ends although it has its turn.
  void give_up(DeviceOperationId id, Device device, const Error& why);
  void worker_lost(WorkerId worker, const Error& why);
  /// Nothing happens any more; idempotent.
  void stop();

  struct Counts {
    size_t operations = 0, turns = 0;  ///< that go on; that are kept
  };
  Counts counts() const;

  void on_accepted(std::shared_ptr<net::Connection> connection) override;
  void on_message(net::Connection& connection, net::Message message) override;
  void on_closed(net::Connection& connection, const Error& reason) override;

 private:
  struct Called {
    DeviceOperation operation;
    Done done;
    Told told = Told::later;
    bool ready = false;
  };
  struct OwnDevice {
    explicit OwnDevice(WorkerDevice here) : turns(here) {}
    Turns turns;
    std::unique_ptr<DeviceThread> thread;
    std::map<DeviceOperationId, Called> called;
  };
  using Out = Turns::Out;
  struct Sent {
    WorkerId to;
    TurnsPacket packet;
  };

  DevicePlace look_at_with_lock(Device device, std::string& why) TROUPE_REQUIRES(mutex_);
  OwnDevice* find(uint32_t device) TROUPE_REQUIRES(mutex_);
  void open_transport() TROUPE_REQUIRES(mutex_);
  // Operations that have failed, by what the library says, and whom of their members it may come from.
  struct Doubt {
    uint32_t device = 0;
    std::vector<LauncherEvent> failed = {};
    size_t open = 0;  // questions
    std::vector<std::string> there = {}, silent = {};
  };
  void heard(uint32_t device, const std::vector<LauncherEvent>& events);
  void ask_members(uint32_t device, std::vector<LauncherEvent> failed);
  void heard_of_member(Doubt& doubt, WorkerId member, const Result<Value>& answer);
  void settle(const Doubt& doubt);
  void heard(OwnDevice& own, uint32_t device, const LauncherEvent& event) TROUPE_REQUIRES(mutex_);
  void perform(uint32_t device, Out out) TROUPE_REQUIRES(mutex_);
  void perform_one(OwnDevice& own, Out& out) TROUPE_REQUIRES(mutex_);
  void end(OwnDevice& own, DeviceOperationId id, std::optional<Error> why) TROUPE_REQUIRES(mutex_);
  void put(WorkerId to, TurnsPacket packet) TROUPE_REQUIRES(mutex_);
  void ask_where(WorkerId peer);
  void heard_where(WorkerId peer, const Result<std::vector<std::string>>& addresses);
  void flush();

  actors::Worker& worker_;
  const std::string host_;
  actors::Members peers_;  // with the addresses of their turns
  actors::Links links_;
  MakeTransport make_transport_;
  std::string why_out_ = "the worker has no connections for turns";
  mutable Mutex mutex_;
  bool stopped_ TROUPE_GUARDED_BY(mutex_) = false;
  std::map<uint32_t, std::unique_ptr<OwnDevice>> devices_ TROUPE_GUARDED_BY(mutex_);
  // Of those that are asked where they are: what waits for the answer, and those that are still to be asked.
  std::map<WorkerId, std::vector<TurnsPacket>> unknown_ TROUPE_GUARDED_BY(mutex_);
  std::vector<WorkerId> strangers_ TROUPE_GUARDED_BY(mutex_);
  std::deque<Sent> outbox_ TROUPE_GUARDED_BY(mutex_);
  bool sends_ TROUPE_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<net::Listener>> listeners_ TROUPE_GUARDED_BY(mutex_);
  std::vector<std::string> addresses_ TROUPE_GUARDED_BY(mutex_);
  std::unique_ptr<net::Transport> transport_;
  actors::JobQueue results_;  // where `done` is called
};

}  // namespace troupe::internal::collective
