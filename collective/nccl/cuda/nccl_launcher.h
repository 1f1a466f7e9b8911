// What the one NCCL thread of a device does: makes communicators, launches operations in the order of their
// turns, and ends communicators that have lost a member. It never waits for a kernel: memory of a
// communicator, whose freeing waits for all kernels of the device, is freed when none of NCCL runs there.
//
// Nor does the library's stream ever wait for another stream: what that one has been asked for meanwhile may
// wait, by way of other devices, for an operation that this device has still to launch. The host has seen
// that the inputs are there, and it sees the end, before others use the tensors.
#pragma once
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collective/nccl/cuda/nccl_library.h"
#include "collective/nccl/launcher.h"

namespace troupe::internal::collective {

class NcclLauncher final : public Launcher {
 public:
  NcclLauncher(const Nccl& nccl, WorkerDevice here, Device device);
  ~NcclLauncher() override;

  void expect(const DeviceOperation& operation, DeviceWork work,
              std::unique_ptr<DeviceInputs> inputs) override;
  void forget(DeviceOperationId id) override;
  void launch(DeviceOperationId id) override;
  void has_id(DeviceOperationId id, const std::string& text) override { ids_[id] = text; }
  void drop(DeviceOperationId id) override;
  void lose(WorkerId worker) override;
  std::vector<LauncherEvent> poll(bool& moved) override;
  size_t open() const override { return expected_.size() + queue_.size() + running_.size() + ending_.size(); }

 private:
  using Members = std::vector<WorkerDevice>;
  struct Communicator {
    ncclComm_t comm = nullptr;
    bool ready = false;
  };
  struct Expected {
    DeviceOperation operation;
    DeviceWork work;
    std::unique_ptr<DeviceInputs> inputs;  // null: they are there
  };
  struct Item {
    DeviceOperation operation;
    DeviceWork work;
    enum { waiting, making, issuing } state = waiting;
    size_t issued = 0;  // steps
  };
  struct Running {
    DeviceOperation operation;
    DeviceWork work;
    cudaEvent_t ended;
  };
  struct Ending {
    Communicator communicator;
    std::vector<DeviceWork> kept;  // that its kernels may use
    bool is_aborted = false;       // its last kernels may still be ending
  };
  struct Step {  // of the operation at the head of the queue
    ncclResult_t result = ncclSuccess;
    bool moved = false;
  };

  int rank_of(const Members& members) const;
  bool look_for_inputs();
  bool look_for_ends();
  bool look_for_errors();
  bool go_on_with_head();
  Step begin(Item& item);
  Step go_on(Item& item, Communicator& communicator);
  ncclResult_t make_communicator(Item& item);
  ncclResult_t issue(Item& item, ncclComm_t comm);
  ncclResult_t call(const DeviceStep& step, const std::string& reduction, ncclComm_t comm) const;
  void end(const std::set<Members>& which, const std::string& why,
           LauncherEvent::Kind kind = LauncherEvent::failed);
  bool free_ending();
  std::string text_of(ncclResult_t result) const;

  const Nccl& nccl_;
  const WorkerDevice here_;
  const Device device_;
  const cudaStream_t stream_;
  std::map<DeviceOperationId, Expected> expected_;
  std::map<Members, Communicator> communicators_;
  std::vector<Ending> ending_;  // told to stop, and not freed: nothing is launched meanwhile
  std::map<DeviceOperationId, std::string> ids_;  // that have come, and not been used
  std::deque<Item> queue_;
  std::deque<Running> running_;
  std::vector<LauncherEvent> events_;
};

}  // namespace troupe::internal::collective
