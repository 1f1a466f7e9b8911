// Runs operations of groups on a worker: tensors, messages and futures around the table of operations.
#pragma once
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/cell/extension.h"
#include "collective/collective_messages.h"
#include "collective/group.h"
#include "collective/group_number.h"
#include "collective/lanes.h"
#include "collective/mail.h"
#include "collective/measured_links.h"
#include "collective/nccl/device_operations.h"
#include "collective/nccl/transfers.h"
#include "collective/recorded.h"
#include "collective/request.h"

namespace troupe::internal::collective {

class GroupEngine;

/// What a member has called, until it is over.
struct GroupCall {
  using Done = std::function<void(Result<Tensors>)>;

  GroupEngine& engine;
  const Collective collective;
  const std::string what;  ///< its name
  const uint64_t group;
  const Standing at;
  const std::vector<GroupMember> members;
  const HostOfRank hosts;
  const HostCounts on;               ///< these
  const std::optional<Links> links;  ///< if they are known
  std::optional<Way> way = {};       ///< that was asked for
  const std::string tag;
  const bool single_use;
  const uint64_t context;
  const Duration limit;  ///< zero: none
  const TimePoint end;
  Done done;
  std::weak_ptr<RecordedOperation> recorded = {};  ///< kept by `done`
  LaneTurn turn = {};                              ///< of an operation that may go by memory

  Mutex mutex;
  std::optional<OperationId> now TROUPE_GUARDED_BY(mutex);  // the operation that is under way for it
  bool cancelled TROUPE_GUARDED_BY(mutex) = false;

  /// Ends it on all ranks.
  void cancel();
};
using GroupCallPtr = std::shared_ptr<GroupCall>;

/// Thread-safe. One of each worker.
class GroupEngine final : public actors::Extension {
 public:
  explicit GroupEngine(actors::Worker& worker)
      : worker_(worker),
        lanes_(std::make_shared<Lanes>(
            worker, table_,
            [this](const OperationId& id, LaneOutcome::Decided d) { decided(id, std::move(d)); })),
        mail_(worker),
        devices_(worker),
        transfers_(worker, devices_),
        fetches_(worker.runtime()) {}
  /// Part of every worker's set-up.
  static void install(actors::Worker& worker);
  static GroupEngine& of(actors::Worker& worker);
  DeviceOperations& devices() { return devices_; }
  const Transfers& transfers() const { return transfers_; }

  GroupCallPtr call(const Group& group, Collective what, const CollectiveOptions& options);
  /// Does what is small in memory that the members share, if all of them have called it, or do at once: then
  /// call.xs are the results. Else it is called, with that turn, which may be an empty one.
  bool call_by_memory(const Group& group, const SmallCall& call, const CollectiveOptions& options,
                      LaneTurn& turn);
  /// Refuses the call, unless it has begun: it counts, and fails on all members, which hear why.
  void refuse(const GroupCallPtr& call, const Error& why);
  /// Does what was called, and tells call->done of the result.
  void begin(const GroupCallPtr& call, Request request);
  /// The same after the ranks have told each other their sizes, unless they know them.
  void begin(const GroupCallPtr& call, Described own);

  /// How long a call made here may take that is to take that long.
  Duration limit_of(const std::optional<Duration>& timeout) const;
  Mail& mail() { return mail_; }
  MeasuredLinks& links() { return links_; }
  const MeasuredLinks& links() const { return links_; }
  /// Who records operations, which lives as long as this. Before any is called.
  void record_by(OperationRecorder& recorder) { recorder_ = &recorder; }
  OperationRecorder* recorder() const { return recorder_; }

  /// The operation of that tag, which is of a single use, fails on all members, whether they have called it
  /// or not.
  void give_up(const Group& group, const std::string& tag, const Error& why);
  /// Operations of the group whose tags begin so fail here, those that go on and those that are called later,
  /// and on all members that wait for them.
  void fail_tags(const Group& group, const std::string& begin, const Error& why);
  bool uses_memory() const { return lanes_->made() > 0; }
  /// What parts of operations have been sent as messages, to others.
  int64_t sent_bytes() const { return sent_bytes_; }
  /// To members on other hosts.
  int64_t sent_between_hosts() const { return sent_between_hosts_; }
  /// The group is used no more here: operations that go on are cancelled, on all ranks.
  void forget(const Group& group);

  void worker_lost(WorkerId id, const Error& why) override;
  void waits(std::vector<std::string>& all) const override {
    for (std::string& one : table_->waits()) all.push_back(std::move(one));
  }
  void joint_waits(std::vector<actors::JointWait>& all) const override {
    for (auto& one : table_->joint_waits()) all.push_back(std::move(one));
  }
  void stop() override;

 private:
  friend struct GroupCall;
  // An operation of this worker.
  struct Sized;
  struct Run {
    GroupCallPtr call;
    Request request;
    GroupCall::Done done;
    Device device = cpu;                     // of this rank, if it goes from device to device,
    std::vector<WorkerDevice> devices = {};  // and of all
    bool has_begun = false;                  // there
    LanePtr lane = {};                       // of one that may be done by memory,
    Tensor result = {};                      // and was
    std::shared_ptr<Sized> sized = {};       // in which the ranks tell each other its sizes
    Mutex mutex;
    Ref<actors::Invocation> waits TROUPE_GUARDED_BY(mutex);  // of kOver
    bool over TROUPE_GUARDED_BY(mutex) = false;
  };
  using RunPtr = std::shared_ptr<Run>;
  // An operation that begins when the sizes are known.
  struct Sized {
    GroupCallPtr call;
    Described own;
    std::optional<Request> request = {};  // of a device, whose sizes were known
    uint64_t use = 0;                     // of the tag, when they told each other
    std::optional<Result<Tensors>> sizes = {};
    Tensor gathered = {};     // by memory: there is nothing to do any more
    bool is_unknown = false;  // to the others: no rank has heard sizes of this one
    Device device() const { return request ? request->device : own.device(); }
  };
  using SizedPtr = std::shared_ptr<Sized>;
  struct Queue {
    uint64_t group;
    size_t rank;
    std::string tag;
    auto operator<=>(const Queue&) const = default;
  };
  using Out = Operations::Out;

  void part(WorkerId sender, RankAddress address, SentSignature signature, uint64_t chunk, uint32_t slot,
            Tensors elements);
  void abort(WorkerId sender, RankAddress address, ErrorKind kind, std::string message, std::string lost);
  bool ask(WorkerId sender, const RankAddress& address);
  void over(const Ref<actors::Invocation>& call, const RankAddress& address);
  void cancel(const OperationId& id);

  void enter(const RunPtr& run, const OperationTag& tag, const SizedPtr& sized = nullptr,
             const std::optional<Error>& fails = {});
  static bool may_go_by_memory(const Run& run, const OperationTag& tag, const SizedPtr& sized);
  template <class F>
  void with_turn(GroupCall& call, const OperationTag& tag, F f);
  void decided(const OperationId& id, LaneOutcome::Decided decided);
  void exchange(const SizedPtr& sized);
  void begin_sized(const Queue& queue);
  void begin_sized(const SizedPtr& next);
  void enter_sized(const SizedPtr& next);
  void begin_on_devices(const SizedPtr& sized);
  bool waits_for_device(const Sized& next) const;
  static void prepare(const Sized& next, const std::vector<Description>& all, Run& run);
  void launch(const Operations::Work& work, const RunPtr& run);
  void stop_devices(const Operations::Finished& unwanted);
  RunPtr find(const OperationId& id) const;
  void wait_until_over(const OperationId& id, const GroupCall& call);
  void perform(Out out);
  void do_all(Out out);
  void do_work(Operations::Work& work, Run& run);
  void tell(const Notice& notice);
  void finish(const Operations::Finished& finished);

  actors::Worker& worker_;
  const std::shared_ptr<Operations> table_ =
      std::make_shared<Operations>();  // of actors that are members, too
  Operations& operations_ = *table_;
  const std::shared_ptr<Lanes> lanes_;  // likewise
  Mail mail_;
  MeasuredLinks links_;
  OperationRecorder* recorder_ = nullptr;
  DeviceOperations devices_;
  Transfers transfers_;
  mutable Mutex mutex_;
  std::map<OperationId, RunPtr> runs_ TROUPE_GUARDED_BY(mutex_);
  std::map<Queue, std::deque<SizedPtr>> sized_ TROUPE_GUARDED_BY(mutex_);  // in the order of their calls
  Mutex queue_mutex_;
  std::deque<Out> queue_ TROUPE_GUARDED_BY(queue_mutex_);
  bool performs_ TROUPE_GUARDED_BY(queue_mutex_) = false;
  std::atomic<int64_t> sent_bytes_{0}, sent_between_hosts_{0};
  actors::JobQueue fetches_;  // last: its jobs use the others
};

}  // namespace troupe::internal::collective
