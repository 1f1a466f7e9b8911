// The simulated NCCL: what it computes, and that it finds what is wrong in a program, however small its
// tensors are. Operations posted as they come lock up; in the order of turns (collective/turns) they do not.
#include <array>
#include <cstring>
#include <thread>

#include "tests/sim_cuda/nccl_devices.h"
#include "tests/support/seeds.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;

TEST_CASE("nccl: two devices that each send first lock up, and in one order they do not") {
  for (uint64_t seed = 1; seed <= seeds(50); ++seed) {
    INFO("seed " << seed);
    Program p;
    p.add({0, 1}, true);
    p.add({1, 0}, true);
    {
      const Schedule schedule(seed);
      Generator random(seed);
      CHECK(runs(p, random));
    }
    p.orders[1] = {1, 0};
    const Schedule schedule(seed);
    Generator random(seed);
    CHECK_FALSE(runs(p, random));
    CHECK_THAT(sim_cuda::locked_up(),
               Contains("of rank 0 waits for rank 1") && Contains("of rank 1 waits for rank 0"));
  }
}

TEST_CASE("nccl: random transfers and overlapping groups lock up as they come, and by turns none does") {
  uint64_t locked = 0, locked_on_two_streams = 0;
  const uint64_t programs = seeds(50);
  for (uint64_t seed = 1; seed <= programs; ++seed) {
    INFO("seed " << seed);
    Generator random(seed);
    Program p = random_program(random);
    for (auto& order : p.orders) {
      std::vector<size_t> shuffled;
      for (const int64_t i : random.permutation(static_cast<int64_t>(order.size())))
        shuffled.push_back(order[static_cast<size_t>(i)]);
      order = shuffled;
    }
    {
      const Schedule schedule(seed);
      locked += !runs(p, random);
    }
    order_by_turns(p, random);
    {
      const Schedule schedule(seed);
      CHECK(runs(p, random));
    }
    {
      const Schedule schedule(seed, true);
      CHECK(runs(p, random, true));
    }
    const Schedule schedule(seed);
    locked_on_two_streams += !runs(p, random, true);
  }
  CHECK(locked > programs / 2);
  CHECK(locked_on_two_streams > 0);  // CUDA promises no order between them
}

TEST_CASE("nccl: a send waits for its receive, and what is grouped goes at once") {
  for (uint64_t seed = 0; seed <= 20; ++seed) {
    INFO("seed " << seed);
    const Schedule schedule(seed);
    const auto c = communicators({0, 1});
    std::array<float*, 2> x{}, y{};
    for (int i = 0; i < 2; ++i) {
      const auto k = static_cast<size_t>(i);
      x[k] = buffer(i, static_cast<float>(i + 1));
      y[k] = buffer(i);
      must(ncclGroupStart());
      must(ncclSend(x[k], kCount, ncclFloat32, 1 - i, c[k], stream_of(i, nccl)));
      must(ncclRecv(y[k], kCount, ncclFloat32, 1 - i, c[k], stream_of(i, nccl)));
      must(ncclGroupEnd());
    }
    for (ncclComm_t one : c) REQUIRE(is_issued(one));
    for (int i = 0; i < 2; ++i)
      CHECK(values(i, y[static_cast<size_t>(i)])[kCount - 1] == static_cast<float>(2 - i));
    must(ncclSend(x[0], 1, ncclFloat32, 1, c[0], stream_of(0, nccl)));
    REQUIRE(is_issued(c[0]));
    CHECK(cudaStreamQuery(stream_of(0, nccl)) == cudaErrorNotReady);
    CHECK(cudaStreamSynchronize(stream_of(0, nccl)) != cudaSuccess);
    CHECK_THAT(sim_cuda::take_fault(), Contains("ncclSend(1 float32) of rank 0 waits for rank 1"));
  }
}

TEST_CASE("nccl: collectives compute what they say") {
  for (uint64_t seed = 0; seed <= 20; ++seed) {
    INFO("seed " << seed);
    const Schedule schedule(seed);
    const auto c = communicators({0, 1});
    int ranks = 0, rank = 0, device = 0;
    must(ncclCommCount(c[1], &ranks));
    must(ncclCommUserRank(c[1], &rank));
    must(ncclCommCuDevice(c[1], &device));
    CHECK(std::array{ranks, rank, device} == std::array{2, 1, 1});
    std::array<float*, 2> in{}, out{};
    for (int i = 0; i < 2; ++i) {
      in[static_cast<size_t>(i)] = buffer(i, static_cast<float>(i + 1));
      out[static_cast<size_t>(i)] = buffer(i);
    }
    // The element at a place, on both.
    const auto results = [&](size_t element, auto&& call) {
      for (int i = 0; i < 2; ++i) {
        const auto k = static_cast<size_t>(i);
        set_device(i);
        must(call(in[k], out[k], c[k], stream_of(i, nccl)));
      }
      for (ncclComm_t one : c) REQUIRE(is_issued(one));
      return std::vector<float>{values(0, out[0])[element], values(1, out[1])[element]};
    };
    using Two = std::vector<float>;
    CHECK(results(5, [](auto x, auto y, auto comm, auto s) {
            return ncclAllReduce(x, y, kCount, ncclFloat32, ncclAvg, comm, s);
          }) == Two{1.5f, 1.5f});
    CHECK(results(kCount - 1, [](auto x, auto y, auto comm, auto s) {
            return ncclAllGather(x, y, kCount / 2, ncclFloat32, comm, s);
          }) == Two{2, 2});
    CHECK(results(0, [](auto x, auto y, auto comm, auto s) {
            return ncclReduceScatter(x, y, kCount / 2, ncclFloat32, ncclSum, comm, s);
          }) == Two{3, 3});
    CHECK(results(9, [](auto x, auto y, auto comm, auto s) {
            return ncclBroadcast(x, y, kCount, ncclFloat32, 1, comm, s);
          }) == Two{2, 2});
    CHECK(results(9, [](auto x, auto y, auto comm, auto s) {
            return ncclReduce(x, y, kCount, ncclFloat32, ncclProd, 0, comm, s);
          })[0] == 2);
    CHECK(sim_cuda::take_fault() == "");
    const uint64_t before = sim_cuda::nccl_counters().communicators;
    for (ncclComm_t one : c) {
      must(ncclCommFinalize(one));
      must(ncclCommDestroy(one));
    }
    CHECK(sim_cuda::nccl_counters().communicators == before - 2);
  }
}

TEST_CASE("nccl: operations that differ between ranks are found when they are asked for") {
  const Schedule schedule(0);
  const auto c = communicators({0, 1});
  float *a = buffer(0, 1.0f), *b = buffer(0), *d = buffer(1, 1.0f), *e = buffer(1);
  SECTION("collectives, in count") {
    ncclAllReduce(a, b, kCount, ncclFloat32, ncclSum, c[0], stream_of(0, nccl));
    ncclAllReduce(d, e, kCount / 2, ncclFloat32, ncclSum, c[1], stream_of(1, nccl));
    CHECK_THAT(
        sim_cuda::take_fault(),
        Contains("operation 0 of a communicator: rank 0 issues ncclAllReduce(64 float32, operation 0), rank "
                 "1 ncclAllReduce(32 float32"));
  }
  SECTION("collectives, in kind") {
    ncclAllReduce(a, b, kCount, ncclFloat32, ncclSum, c[0], stream_of(0, nccl));
    ncclBroadcast(d, e, kCount, ncclFloat32, 0, c[1], stream_of(1, nccl));
    CHECK_THAT(sim_cuda::take_fault(), Contains("rank 1 ncclBroadcast(64 float32, root 0)"));
  }
  SECTION("transfers, in type") {
    ncclSend(a, kCount, ncclFloat32, 1, c[0], stream_of(0, nccl));
    ncclRecv(e, kCount, ncclBfloat16, 0, c[1], stream_of(1, nccl));
    CHECK_THAT(sim_cuda::take_fault(),
               Contains("one has ncclSend(64 bfloat16), the other ncclSend(64 float32)") ||
                   Contains("one has ncclSend(64 float32), the other ncclSend(64 bfloat16)"));
  }
}

TEST_CASE("nccl: who waits for a rank that skips a collective is told which") {
  const Schedule schedule(0);
  const auto c = communicators({0, 1, 2});
  for (const int i : {0, 2})
    must(ncclAllReduce(buffer(i, 1.0f), buffer(i), kCount, ncclFloat32, ncclSum, c[static_cast<size_t>(i)],
                       stream_of(i, nccl)));
  REQUIRE((is_issued(c[0]) && is_issued(c[2])));
  CHECK(cudaStreamSynchronize(stream_of(0, nccl)) != cudaSuccess);
  CHECK_THAT(sim_cuda::take_fault(),
             Contains("cudaStreamSynchronize waits for ever") &&
                 Contains("ncclAllReduce(64 float32, operation 0) of rank 0 waits for rank 1"));
}

TEST_CASE("nccl: two threads that use it on one device are found") {
  const Schedule schedule(0);
  const auto c = communicators({0, 1});
  float *a = buffer(0, 1.0f), *b = buffer(0);
  std::thread([&] { ncclAllReduce(a, b, kCount, ncclFloat32, ncclSum, c[0], stream_of(0, nccl)); }).join();
  CHECK_THAT(sim_cuda::take_fault(),
             Contains("two threads use NCCL on device 0: the second calls ncclAllReduce"));
}

TEST_CASE("nccl: an event that is recorded before a group is on its stream covers nothing") {
  for (const bool early : {true, false}) {
    const Schedule schedule(3);
    const auto c = communicators({0, 1});
    float *x = buffer(0, 5.0f), *y = buffer(1), *copy = buffer(1);
    const cudaStream_t to = stream_of(1, nccl);
    cudaEvent_t received = nullptr;
    must(cudaEventCreateWithFlags(&received, cudaEventDisableTiming));
    REQUIRE(ncclRecv(y, kCount, ncclFloat32, 0, c[1], to) == ncclInProgress);
    if (early) must(cudaEventRecord(received, to));
    set_device(0);
    must(ncclSend(x, kCount, ncclFloat32, 1, c[0], stream_of(0, nccl)));
    REQUIRE((is_issued(c[0]) && is_issued(c[1])));
    set_device(1);
    if (!early) must(cudaEventRecord(received, to));
    must(cudaStreamWaitEvent(stream_of(1, compute), received, 0));
    must(cudaMemcpyAsync(copy, y, kBytes, cudaMemcpyDeviceToDevice, stream_of(1, compute)));
    cudaStreamSynchronize(to);
    cudaStreamSynchronize(stream_of(0, nccl));
    cudaStreamSynchronize(stream_of(1, compute));
    const std::string fault = sim_cuda::take_fault();
    if (early)
      CHECK_THAT(fault, Contains("and neither waits for the other"));
    else
      CHECK(fault == "");
    cudaEventDestroy(received);
  }
}

TEST_CASE("nccl: a communicator is used only when its last operation is on its stream") {
  const Schedule schedule(0);
  ncclUniqueId id;
  must(ncclGetUniqueId(&id));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  std::array<ncclComm_t, 2> c{};
  set_device(0);
  CHECK(ncclCommInitRankConfig(&c[0], 2, id, 0, &config) == ncclInProgress);
  CHECK(ncclAllReduce(nullptr, nullptr, 0, ncclFloat32, ncclSum, c[0], stream_of(0, nccl)) ==
        ncclInvalidArgument);
  // The second rank is on the same device, which NCCL refuses.
  CHECK(ncclCommInitRankConfig(&c[1], 2, id, 1, &config) == ncclInProgress);
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) must(ncclCommGetAsyncError(c[0], &state));
  CHECK(state == ncclInvalidUsage);
  std::memset(&id, 7, sizeof id);
  CHECK(ncclCommInitRankConfig(&c[1], 2, id, 1, &config) == ncclSystemError);
}

TEST_CASE("nccl: pinning memory waits for a kernel that waits for its peer") {
  const Schedule schedule(0);
  const auto c = communicators({0, 1});
  float *y = buffer(0), *x = buffer(1, 1.0f);
  must(ncclRecv(y, kCount, ncclFloat32, 1, c[0], stream_of(0, nccl)));
  must(ncclSend(x, kCount, ncclFloat32, 0, c[1], stream_of(1, nccl)));
  REQUIRE(is_issued(c[0]));  // and not yet c[1]
  set_device(0);
  void* pinned = nullptr;
  CHECK(cudaHostAlloc(&pinned, 4096, 0) != cudaSuccess);
  CHECK_THAT(sim_cuda::take_fault(), Contains("cudaHostAlloc waits for ever"));
}

TEST_CASE("nccl: communicators that have lost a peer are aborted together, or all revoked before") {
  enum Way { together, one_by_one, revoked };
  for (const Way way : {together, one_by_one, revoked}) {
    INFO("way " << way);
    const Schedule schedule(0);
    sim_cuda::set_nccl_kernels_at_once(2);
    const auto a = communicators({0, 1}), b = communicators({0, 1});
    float *x = buffer(0, 1.0f), *y = buffer(0), *z = buffer(0);
    must(ncclAllReduce(x, y, kCount, ncclFloat32, ncclSum, a[0], stream_of(0, nccl)));
    must(ncclAllReduce(x, z, kCount, ncclFloat32, ncclSum, b[0], stream_of(0, second)));
    REQUIRE((is_issued(a[0]) && is_issued(b[0])));
    sim_cuda::kill_gpu(1, false);
    set_device(0);
    if (way == together) must(ncclGroupStart());
    if (way == revoked)
      for (ncclComm_t c : {a[0], b[0]}) {
        must(ncclCommRevoke(c, NCCL_REVOKE_DEFAULT));
        REQUIRE(is_issued(c));
      }
    ncclCommAbort(a[0]);
    if (way == one_by_one) {
      CHECK_THAT(sim_cuda::take_fault(),
                 Contains("ncclCommAbort, which frees memory of the device, waits for ever"));
      continue;
    }
    must(ncclCommAbort(b[0]));
    if (way == together) must(ncclGroupEnd());
    CHECK(sim_cuda::locked_up() == "");
    CHECK(sim_cuda::take_fault() == "");
    CHECK(cudaStreamSynchronize(stream_of(0, nccl)) == cudaSuccess);
    CHECK(values(0, x)[0] == 1);  // the device works on
  }
}

TEST_CASE("nccl: a peer that is killed is noticed, or its kernels are waited for") {
  for (const bool noticed : {true, false}) {
    const Schedule schedule(0);
    const auto c = communicators({0, 1});
    float* y = buffer(0);
    must(ncclRecv(y, kCount, ncclFloat32, 1, c[0], stream_of(0, nccl)));
    must(ncclSend(buffer(1, 1.0f), kCount, ncclFloat32, 0, c[1], stream_of(1, nccl)));
    REQUIRE(is_issued(c[0]));
    sim_cuda::kill_gpu(1, noticed);
    ncclResult_t state = ncclSuccess;
    must(ncclCommGetAsyncError(c[0], &state));
    CHECK(state == (noticed ? ncclRemoteError : ncclSuccess));
    CHECK_THAT(sim_cuda::locked_up(), Contains("of rank 0 waits for rank 1"));
    must(ncclCommAbort(c[0]));
    CHECK(sim_cuda::locked_up() == "");
    CHECK(sim_cuda::take_fault() == "");
  }
}
