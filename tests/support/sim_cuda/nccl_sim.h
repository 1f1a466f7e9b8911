// What tests ask of the simulated NCCL (nccl.cpp). No header of NCCL is needed.
//
// What it holds programs to, beyond NCCL's own checks; each is a fault that names ranks (sim.h, take_fault):
//   * a send waits for its receive, and a collective for all ranks, however small they are;
//   * CUDA promises no progress to two streams at once: one kernel of NCCL runs on a device at a time, and
//     a schedule chooses which (in the order of launches with NCCL_LAUNCH_ORDER_IMPLICIT=1);
//   * the n-th operation of a communicator is the same on all ranks, and the n-th transfer of a pair;
//   * one thread asks for all operations of a device;
//   * what synchronizes a device (pinning, trimming, making and aborting communicators)
//     waits for its kernels;
//   * a non-blocking group is on its stream only once ncclCommGetAsyncError has said so.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace sim_cuda {

struct NcclCounters {
  uint64_t communicators = 0;  ///< that there are
  uint64_t inits = 0, aborts = 0, launches = 0, transfers = 0, collectives = 0;
  uint64_t deaths = 0;  ///< of GPUs
  /// Ids, communicators that a rank joins or that are made, groups that end, kernels that are launched or
  /// begin, what they do, and communicators that are revoked or aborted.
  uint64_t events = 0;
};
NcclCounters nccl_counters();
/// Everything as at first: a test that ends a lock-up on purpose.
void reset_nccl();

/// Why nothing more can happen by itself although streams have work; "" if something can, or none has.
std::string locked_up();
/// Does what can be done without the host.
void run_what_can();
/// For how long a waiting thread gives other threads time to ask for what it needs; zero: it has no others.
void set_patience(std::chrono::milliseconds patience);

/// Kernels of NCCL that a device may run at once: 1 unless set. No program may need more.
void set_nccl_kernels_at_once(int count);
/// The process that has this device ends, until reset_nccl(): its kernels of NCCL vanish, and there it looks
/// as if they never ended, those that come later as well. What else the device does goes on, so that nothing
/// wrong comes from threads of that process, which is this one. `noticed`: others' communicators with it get
/// ncclRemoteError; else they wait, as NCCL does within a host.
void kill_gpu(int device, bool noticed);
/// The same between two calls of NCCL, or two tasks of streams, after so many NcclCounters::events. `told` is
/// called at that moment, by any thread, and uses neither CUDA nor NCCL.
void kill_gpu_at(uint64_t event, int device, bool noticed, std::function<void()> told = {});

}  // namespace sim_cuda
