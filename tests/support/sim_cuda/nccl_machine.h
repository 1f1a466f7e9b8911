// The simulated NCCL: communicators between devices of this process, whose operations meet. nccl.cpp has its
// functions, nccl_launch.cpp its kernels.
#pragma once
#include <nccl.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/sim_cuda/machine.h"
#include "tests/support/sim_cuda/nccl_sim.h"

namespace sim_cuda::nccl {

enum class Kind : uint8_t { send, receive, all_reduce, all_gather, reduce_scatter, broadcast, reduce };

struct Launch;
struct Operation {
  Kind kind;
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t sum = ncclSum;
  int other = 0;  // peer or root
  Launch* launch = nullptr;
  bool done = false;
};

struct Clique;

}  // namespace sim_cuda::nccl

// A rank of a communicator.
struct ncclComm {
  using Operation = sim_cuda::nccl::Operation;
  using Launch = sim_cuda::nccl::Launch;
  std::shared_ptr<sim_cuda::nccl::Clique> clique;
  int rank = 0, device = 0;
  bool blocking = true, aborted = false, revoked = false, dead = false, ready = false, finalized = false;
  ncclResult_t error = ncclSuccess;
  std::set<uint64_t> before_init;  // kernels that making it waits for
  std::vector<std::deque<Operation*>> sends, receives;
  std::deque<Operation*> collectives;
  std::vector<std::shared_ptr<Launch>> issuing;  // of a group that is not on its stream yet
  int polls = 0;                                 // before what is being issued is on its stream
};

namespace sim_cuda::nccl {

struct Clique {
  std::vector<ncclComm*> ranks;
  std::vector<std::string> issued;  // collectives, as the first rank has them
  std::vector<size_t> count;        // of them, for each rank
  std::map<std::pair<int, int>, std::array<std::vector<std::string>, 2>> transfers;  // by sender, receiver
  std::set<std::pair<int, int>> wanted;  // connections: who has asked for one with whom
  bool failed = false;
};

std::string text_of(const Operation& o);
const char* name_of(Kind kind);

struct Death {
  uint64_t event;
  int device;
  bool noticed;
  std::function<void()> told;
};

struct State {
  std::map<std::string, std::shared_ptr<Clique>> cliques;  // by their ids
  std::set<ncclComm*> comms;
  std::map<int, std::vector<Launch*>> launches;  // of devices, in their order; those that have not ended
  std::map<int, std::thread::id> threads;
  std::set<int> dead;         // devices whose processes have ended
  std::vector<Death> deaths;  // that are to come
  sim_cuda::NcclCounters counters;
  int at_once = 1;
  uint64_t ids = 0;
};
State& state();
// See kill_gpu(); the other one between calls and tasks.
void kill(Machine& m, int device, bool noticed);
void kill_whose_time_has_come(Machine& m);

// The operations of a group on one communicator and stream: one kernel. It starts when the device has room,
// and ends when each of its operations has met those of the other ranks.
struct Launch final : Meeting {
  Launch(Machine& m, ncclComm* c, cudaStream_t h) : machine(m), comm(c), handle(h), device(c->device) {}
  ~Launch() override;

  bool can_go() const override;
  bool go() override;
  bool keeps_device() const override { return started && !aborted; }
  std::string waits_for() const override;

  Machine& machine;
  ncclComm* comm;  // null: aborted, and gone
  cudaStream_t handle;
  Stream* stream = nullptr;
  int device = 0;
  std::deque<Operation> operations;
  bool started = false, aborted = false;
  uint64_t number = 0;

 private:
  bool can_start() const;
  bool all_done() const;
  static Operation* other_side(const Operation& o, ncclComm* c);
  bool met(const Operation& o) const;
  std::byte* seen(const Operation& o, const void* p, size_t bytes, bool written) const;
  void perform(Operation& o);
  void perform_collective();
};

}  // namespace sim_cuda::nccl
