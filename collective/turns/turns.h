// The order in which operations of several devices are launched, so that no device waits for ever for
// another.
//
// A kernel that sends keeps its device until the receiver's kernel runs, and one of a collective until it
// runs on all devices: they need one order that is the same everywhere. Programs call in any order. So an
// operation is launched when
//   1. every member is ready: it has called, its inputs are there, and its memory is allocated; and
//   2. its turn has come: members propose a time, the leader takes the largest, and each device launches in
//      the order of (time, operation). A proposal that has no answer yet holds up what is behind it.
// This is Skeen's total-order multicast. A proposal is answered without waiting for another operation, so
// nothing is held up for longer than a round trip. The smallest operation that has not ended is at the head
// on all its devices, and it needs nothing else: it ends, and so do all. Readiness comes before times: an
// early caller would hold up everybody behind a late one.
#pragma once
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/value/value.h"

namespace troupe::internal::collective {

struct WorkerDevice {
  WorkerId worker = kNoWorker;
  uint32_t device = 0;
  auto operator<=>(const WorkerDevice&) const = default;
};

/// Unique in the cluster: a group, or the sender of a transfer, and a number that it has used once.
struct DeviceOperationId {
  uint64_t group = 0, number = 0;
  auto operator<=>(const DeviceOperationId&) const = default;
};

/// An operation that keeps all its devices at once.
struct DeviceOperation {
  DeviceOperationId id;
  WorkerDevice leader = {};                ///< the receiver of a transfer, the first rank of a group
  std::vector<WorkerDevice> members = {};  ///< two or more, in the order of ranks
  std::string brings = {};                 ///< "all_reduce sum float32 [1000]": the same on all members
  /// All members call it or refuse it, whatever becomes of the others (a transfer): each hears here that it
  /// will not be. Else one may do neither; those that are ready hear of that elsewhere and give up (a group).
  bool called_by_all = false;
};

/// What devices tell each other.
struct TurnMessage {
  enum Kind : uint8_t {
    ready,    ///< to the leader: it is ready, and proposes `time` unless that is 0
    ask,      ///< by the leader, when all are ready: propose a time
    propose,  ///< to the leader: `time`
    turn,     ///< by the leader: `time` is the operation's
    give_up,  ///< to the leader: it does not want it any more, or cannot; too late once there is a turn
    drop,     ///< by the leader, to all that may wait for it: it will not be
    dropped,  ///< to the leader: heard, and nothing more of it will come
    failed    ///< to all members: it had its turn, and will not end
  } kind = ready;
  DeviceOperation operation;        ///< only its id, but for ready and give_up
  uint64_t time = 0;                ///< of ready, propose, turn
  bool was_ready = false;           ///< of give_up
  std::optional<Error> error = {};  ///< of give_up, drop, failed
};

/// Turns of one device. Pure, not synchronized: whoever calls it does what `Out` says, in that order.
class Turns {
 public:
  struct Dropped {
    DeviceOperationId id;
    Error error;
    bool launched;  ///< then what it was launched with has to be stopped, too
  };
  struct Out {
    std::vector<std::pair<WorkerDevice, TurnMessage>> messages;
    std::vector<DeviceOperation> launches;  ///< behind those of before
    std::vector<Dropped> dropped;
    std::optional<Error> refused;  ///< what came is no message of an honest member, and nothing was done
  };

  explicit Turns(WorkerDevice here) : here_(here) {}

  /// This device is ready, once for each operation. `propose`: the others will be so as soon as they hear of
  /// it (a transfer), so its time goes along.
  void ready(const DeviceOperation& operation, bool propose, Out& out);
  /// In place of ready(): this device cannot take part.
  void refuse(const DeviceOperation& operation, const Error& why, Out& out);
  /// It is not wanted here any more. `dropped` follows, unless it has its turn.
  void give_up(DeviceOperationId id, const Error& why, Out& out);
  /// It had its turn, and does not end: it is `dropped` here and everywhere.
  void failed(DeviceOperationId id, const Error& why, Out& out);
  /// What was launched has ended here.
  void finished(DeviceOperationId id);
  void receive(WorkerDevice from, const TurnMessage& message, Out& out);
  /// Nothing more comes from a worker: what has it as a member is dropped.
  void lost(WorkerId worker, const Error& why, Out& out);

  /// What is kept of operations: 0 when all have ended.
  size_t open() const {
    return queue_.size() + called_.size() + led_.size() + dropped_early_.size() + left_.size() +
           unheard_.size();
  }
  /// All of its state as text, for tests that visit every state.
  std::string state() const;

 private:
  struct Moment {
    uint64_t time;
    DeviceOperationId id;
    auto operator<=>(const Moment&) const = default;
  };
  struct Called {  // that this device is ready for, or has launched
    DeviceOperation operation;
    uint64_t time = 0;  // 0: it is not in the queue
    bool has_turn = false, launched = false;
  };
  struct Led {
    DeviceOperation operation;
    std::map<WorkerDevice, uint64_t> proposals;  // of those that are ready; 0: none yet
    bool has_turn = false;
  };
  struct Early {
    DeviceOperation operation;  // its members only where this device leads it
    Error error;
  };

  bool drop_at_once(const DeviceOperation& operation, Out& out);
  uint64_t enter(DeviceOperationId id);
  void settle(DeviceOperationId id, uint64_t time, Out& out);
  void launch(Out& out);
  void lead(WorkerDevice member, const DeviceOperation& operation, uint64_t time, Out& out);
  void decide(Led& led, Out& out);
  bool waits(const DeviceOperation& operation, WorkerDevice member) const;
  void drop_everywhere(const DeviceOperation& operation, const Error& why, Out& out);
  void drop_here(DeviceOperationId id, const Error& why, Out& out);
  void stay_away(const DeviceOperation& operation, const Error& why, Out& out);
  void leave(const DeviceOperation& operation, bool was_ready, const Error& why, Out& out);
  void tell_failed(const DeviceOperation& operation, const Error& why, Out& out) const;
  void tell_left(const DeviceOperationId& id, Out& out);
  std::optional<Error> why_lost(const DeviceOperation& operation) const;
  std::string why_refused(WorkerDevice from, const TurnMessage& message) const;

  const WorkerDevice here_;
  uint64_t clock_ = 0;
  std::map<Moment, bool> queue_;  // whether it has its turn
  std::map<DeviceOperationId, Called> called_;
  std::map<DeviceOperationId, Led> led_;
  std::map<DeviceOperationId, Early> dropped_early_;   // before this device was ready
  std::map<DeviceOperationId, DeviceOperation> left_;  // by this device; its leader has not answered
  std::map<DeviceOperationId, std::set<WorkerDevice>> unheard_;  // dropped here, and who has not answered
  std::map<WorkerId, Error> lost_;
};

}  // namespace troupe::internal::collective
