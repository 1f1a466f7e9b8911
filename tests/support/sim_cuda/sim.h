// What tests ask of the simulated GPUs: counters, schedules and faults. No header of CUDA is needed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace sim_cuda {

/// Since the start of the program or reset_counters().
struct Counters {
  uint64_t synchronizations = 0;  ///< times that the host waited
  uint64_t allocations = 0, frees = 0;
  uint64_t grown = 0;  ///< times that a pool had to ask the driver for memory
  uint64_t launches = 0;
  uint64_t copies = 0, fills = 0;
  uint64_t most_used = 0;           ///< bytes of a device at one time
  uint64_t records = 0, waits = 0;  ///< of events, by streams
  uint64_t times = 0;               ///< read between two events
};
Counters counters();
void reset_counters();

/// Work is done when it is asked for: the schedule of a program that sets none.
void schedule_eagerly();
/// Work is delayed as long as the rules of CUDA allow, and streams take turns at random; a seed gives one
/// schedule. TROUPE_SIM_SEED in the environment sets it from the start.
void schedule_by_seed(uint64_t seed);
/// Events that there are.
size_t events();
/// Tasks that wait to be done.
size_t pending();

/// The n-th allocation from now fails (1: the next one), once.
void fail_allocation(uint64_t n);
/// Bytes that each device has: 8 GiB, unless TROUPE_SIM_MEMORY names a number of MiB.
void set_memory(size_t bytes);
/// Bytes of the host's memory that can be pinned; at first as many as there are.
void set_pinned_memory(size_t bytes);

/// Whether it is an address at which kernels see memory of a device.
bool is_of_device(const void* p);

/// What a program did wrong on the devices, the first of it; "" if nothing. Afterwards they work again: what
/// was pending is dropped.
std::string take_fault();

}  // namespace sim_cuda
