// Devices of the simulated machine, their communicators, and programs of transfers and collectives.
#pragma once
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/base/generator.h"
#include "tests/collective/turns_world.h"
#include "tests/support/sim_cuda/nccl_sim.h"
#include "tests/support/sim_cuda/sim.h"

namespace troupe::testing {

using namespace std::chrono_literals;

inline constexpr size_t kCount = 64, kBytes = kCount * sizeof(float);
inline constexpr int kDevices = 4;

inline void must(cudaError_t e) { REQUIRE(e == cudaSuccess); }
inline void must(ncclResult_t r) {
  INFO(ncclGetLastError(nullptr));
  REQUIRE((r == ncclSuccess || r == ncclInProgress));
}
inline void set_device(int device) { must(cudaSetDevice(device)); }

enum StreamUse { compute, nccl, second };
// Made once: the simulation's clocks have a place for each stream that there ever was.
inline cudaStream_t stream_of(int device, StreamUse use) {
  static std::map<std::pair<int, StreamUse>, cudaStream_t> all;
  cudaStream_t& s = all[{device, use}];
  if (!s) {
    set_device(device);
    must(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  }
  return s;
}

// One schedule of the machine, and nothing left of it.
struct Schedule {
  explicit Schedule(uint64_t seed, bool in_order_of_launches = false) {
    sim_cuda::reset_nccl();
    sim_cuda::set_patience(0ms);  // of threads for each other: here is one
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", in_order_of_launches ? "1" : "0", 1);
    seed ? sim_cuda::schedule_by_seed(seed) : sim_cuda::schedule_eagerly();
  }
  ~Schedule() {
    sim_cuda::reset_nccl();
    sim_cuda::schedule_eagerly();
    sim_cuda::take_fault();
  }
};

inline float* buffer(int device, std::optional<float> value = {}) {
  float* data = nullptr;
  set_device(device);
  must(cudaMallocAsync(reinterpret_cast<void**>(&data), kBytes, stream_of(device, compute)));
  const std::vector<float> host(kCount, value.value_or(-1));
  if (value)
    must(cudaMemcpyAsync(data, host.data(), kBytes, cudaMemcpyHostToDevice, stream_of(device, compute)));
  must(cudaStreamSynchronize(stream_of(device, compute)));
  return data;
}
inline std::vector<float> values(int device, const float* data) {
  std::vector<float> host(kCount);
  set_device(device);
  must(cudaStreamSynchronize(stream_of(device, second)));
  must(cudaMemcpyAsync(host.data(), data, kBytes, cudaMemcpyDeviceToHost, stream_of(device, nccl)));
  must(cudaStreamSynchronize(stream_of(device, nccl)));
  return host;
}

inline bool is_issued(ncclComm_t c) {
  ncclResult_t state = ncclInProgress;
  for (int i = 0; i < 20 && state == ncclInProgress; ++i) must(ncclCommGetAsyncError(c, &state));
  return state == ncclSuccess;
}

// Non-blocking communicators of these devices, by rank.
inline std::vector<ncclComm_t> communicators(const std::vector<int>& devices) {
  ncclUniqueId id;
  must(ncclGetUniqueId(&id));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  std::vector<ncclComm_t> all(devices.size());
  must(ncclGroupStart());
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    set_device(devices[rank]);
    must(ncclCommInitRankConfig(&all[rank], static_cast<int>(devices.size()), id, static_cast<int>(rank),
                                &config));
  }
  REQUIRE(ncclGroupEnd() == ncclInProgress);
  for (ncclComm_t c : all) REQUIRE(is_issued(c));
  return all;
}

// Transfers (from, to) and sums of more devices, and in which order each device asks for them.
struct Program {
  std::vector<std::vector<int>> operations;  // their devices
  std::vector<bool> is_transfer;
  std::vector<std::vector<size_t>> orders{kDevices};

  void add(const std::vector<int>& devices, bool transfer) {
    for (const int d : devices) orders[static_cast<size_t>(d)].push_back(operations.size());
    operations.push_back(devices);
    is_transfer.push_back(transfer);
  }
};

inline Program random_program(Generator& random) {
  Program p;
  for (int i = 0; i < 16; ++i) {
    std::vector<int> who;
    for (const int64_t w : random.permutation(kDevices)) who.push_back(static_cast<int>(w));
    who.resize(i % 4 ? 2 : 2 + random.below(kDevices - 1));
    if (i % 4 == 0) std::ranges::sort(who);
    p.add(who, i % 4 != 0);
  }
  return p;
}

// As turns give them, when messages come in a random order.
inline void order_by_turns(Program& p, Generator& random) {
  TurnsWorld world(kDevices);
  for (uint32_t i = 0; i < p.operations.size(); ++i) {
    const std::vector<uint32_t> who(p.operations[i].begin(), p.operations[i].end());
    if (p.is_transfer[i])
      world.add_transfer(who[0], who[1], i);
    else
      world.add_collective(1 + i, who, 0);
  }
  world.settle(random);
  REQUIRE(world.fault() == "");
  for (size_t d = 0; d < kDevices; ++d) {
    p.orders[d].clear();
    for (const DeviceOperationId id : world.launched[d])
      p.orders[d].push_back(id.group >= TurnsWorld::kTransfers ? id.number : id.group - 1);
  }
}

// What the NCCL thread of each device does, on one stream or, for what it receives, a second one; whether all
// ended, with the right elements.
inline bool runs(const Program& p, Generator& random, bool two_streams = false) {
  std::map<std::vector<int>, std::vector<ncclComm_t>> comms;
  std::vector<std::vector<float*>> in(p.operations.size()), out(p.operations.size());
  for (size_t i = 0; i < p.operations.size(); ++i) {
    std::vector<int> who = p.operations[i];
    std::ranges::sort(who);
    if (!comms.contains(who)) comms[who] = communicators(who);
    for (const int d : p.operations[i]) {
      in[i].push_back(buffer(d, static_cast<float>(1 + i)));
      out[i].push_back(buffer(d));
    }
  }
  std::vector<size_t> at(kDevices);
  std::vector<ncclComm_t> issuing(kDevices);
  const auto act = [&](size_t d) {
    if (issuing[d]) {
      ncclResult_t state = ncclInProgress;
      must(ncclCommGetAsyncError(issuing[d], &state));
      if (state == ncclInProgress) return false;
      issuing[d] = nullptr;
      return true;
    }
    if (at[d] == p.orders[d].size()) return false;
    const size_t i = p.orders[d][at[d]++];
    const std::vector<int>& who = p.operations[i];
    std::vector<int> ranks = who;
    std::ranges::sort(ranks);
    const auto place = [&](const std::vector<int>& v, int x) {
      return static_cast<size_t>(std::ranges::find(v, x) - v.begin());
    };
    const int device = static_cast<int>(d);
    issuing[d] = comms.at(ranks)[place(ranks, device)];
    set_device(device);
    const size_t mine = place(who, device);
    const bool receives = p.is_transfer[i] && mine == 1;
    const cudaStream_t stream = stream_of(device, receives && two_streams ? second : nccl);
    if (!p.is_transfer[i])
      must(ncclAllReduce(in[i][mine], out[i][mine], kCount, ncclFloat32, ncclSum, issuing[d], stream));
    else if (mine == 0)
      must(ncclSend(in[i][0], kCount, ncclFloat32, static_cast<int>(place(ranks, who[1])), issuing[d],
                    stream));
    else
      must(ncclRecv(out[i][1], kCount, ncclFloat32, static_cast<int>(place(ranks, who[0])), issuing[d],
                    stream));
    return true;
  };
  for (int quiet = 0; quiet < 500;) {
    quiet = act(random.below(kDevices)) ? 0 : quiet + 1;
    if (random.below(8) == 0) sim_cuda::run_what_can();
  }
  sim_cuda::run_what_can();
  for (size_t d = 0; d < kDevices; ++d)
    if (issuing[d] || at[d] != p.orders[d].size()) return false;
  if (!sim_cuda::locked_up().empty()) return false;
  for (size_t i = 0; i < p.operations.size(); ++i)
    for (size_t k = p.is_transfer[i] ? 1 : 0; k < p.operations[i].size(); ++k) {
      const float expected = static_cast<float>((1 + i) * (p.is_transfer[i] ? 1 : p.operations[i].size()));
      if (values(p.operations[i][k], out[i][k]) != std::vector<float>(kCount, expected))
        FAIL("operation " << i << " gives something else");
    }
  REQUIRE(sim_cuda::take_fault() == "");
  return true;
}

}  // namespace troupe::testing
