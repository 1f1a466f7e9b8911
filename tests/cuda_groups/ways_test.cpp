// Which way tensors of GPUs take, as Cluster::ways() tells it, and what keeps them from NCCL: a sentence that
// names worker, GPU and remedy, and the way by memory of the host.
#include <algorithm>
#include <cstdlib>

#include "actors/worker/reports.h"
#include "collective/engine.h"
#include "tests/cuda/gpus.h"
#include "tests/support/error_of.h"
#include "tests/support/eventually.h"
#include "tests/support/two_workers.h"
#include "troupe/groups.h"
#include "troupe/ways/ways_of_worker.h"
#ifdef TROUPE_CUDA_SIM
#include "tests/support/sim_cuda/nccl_sim.h"
#include "tests/support/sim_cuda/sim.h"
#endif

using namespace troupe;
using namespace troupe::testing;
using namespace troupe::internal::collective;
using Catch::Contains;
using internal::ways_of_all;

#ifdef TROUPE_CUDA_SIM  // real NCCL wants a process for each GPU of a pair
namespace {

constexpr int64_t kLarge = 1 << 19;  // elements, of more than 1 MiB together

struct Peer : Actor {
  Tensor same(Tensor x) { return x; }
  Task<double> sum(Group group, std::string device) {
    const auto sum =
        group.all_reduce(full({1000}, 1.0 + static_cast<double>(group.rank()), {float32, Device(device)}));
    const Tensor y = co_await sum;
    co_return y.to(cpu).flatten()[0].item();
  }
  static constexpr auto remote = methods<&Peer::same, &Peer::sum>;
};

// cuda:0 of w0 stands for cuda:1 of w1, as if each were the process's own.
struct Two : TwoWorkers {
  explicit Two(const internal::net::DeviceMap& map = internal::net::DeviceMap({{gpu0, gpu1}}, "w0 to w1"))
      : TwoWorkers(hosting<Peer>(), map) {
    sim_cuda::reset_nccl();
  }
  TensorWay way(const std::string& from, const std::string& device) {
    const Ways ways = ways_of_all(worker(0));
    const auto at = std::ranges::find_if(
        ways.tensors, [&](const TensorWay& w) { return w.from == from && w.from_device == device; });
    REQUIRE(at != ways.tensors.end());
    return *at;
  }
  GroupWay of_groups() {
    const Ways ways = ways_of_all(worker(0));
    REQUIRE(!ways.groups.empty());
    return ways.groups.back();
  }
  std::string why_without(size_t i, Device device) {
    std::string why;
    (void)GroupEngine::of(worker(i)).devices().look_at(device, why);
    return why;
  }
  int64_t metric(size_t i, const std::string& name) { return worker(i).metrics().at(name); }
};

// A large tensor of w0's cuda:0 to w1 and back.
void echo(const RRef<Peer>& peer) {
  const Tensor x = full({kLarge}, 3.0, {float32, gpu0});
  CHECK(bit_equal(peer.call<&Peer::same>(x).get(), x.to(cpu)));
}

const TensorWay kPinned{.way = "pinned memory, then shared memory",
                        .at_least = 1 << 16,
                        .below = "pinned memory, then a ring of shared memory"};

void check_pinned(const TensorWay& w, const std::string& why) {
  CHECK(w.way == kPinned.way);
  CHECK(w.at_least == kPinned.at_least);
  CHECK(w.below == kPinned.below);
  CHECK(w.why == why);
}

}  // namespace

TEST_CASE("ways tell of NCCL between GPUs of two workers, and take none of these") {
  if (!needs_gpus(2)) return;
  const NoGradGuard off;
  Two two;
  const TensorWay there = two.way("w0", "cuda:0"), back = two.way("w1", "cuda:1");
  for (const TensorWay& w : {there, back}) {
    CHECK_THAT(w.way, Contains("NCCL 2."));
    CHECK(w.at_least == 1 << 20);
    CHECK(w.below == kPinned.way);
    CHECK(w.why == "");
  }
  CHECK(there.to_device == "cuda:1");
  CHECK(back.to_device == "cuda:0");
  const TensorWay other = two.way("w0", "cuda:1");
  CHECK(other.way == "none");
  CHECK(other.to_device == "");
  CHECK_THAT(other.why, Contains("cuda:1") && Contains("w0 to w1"));
  const GroupWay group = two.of_groups();
  CHECK(group.devices == "w0 cuda:0, w1 cuda:1");
  CHECK(group.way == there.way);
  // Any worker may still be the first to use a GPU.
  CHECK(two.why_without(0, gpu1) == "");
  CHECK(two.why_without(1, gpu1) == "");
  // What is told is what happens.
  const auto peer = two.spawn<Peer>();
  REQUIRE(eventually([&] {
    echo(peer);
    return two.metric(0, "device_transfers_sent") > 0;
  }));
  CHECK(two.way("w0", "cuda:0") == there);
  CHECK_THAT(two.why_without(0, gpu1),
             Contains("w0 does without NCCL on cuda:1: another worker of its process has it: give each"));
}

TEST_CASE("two workers with one GPU are told so, and their tensors go by memory of the host") {
  if (!needs_gpus(1)) return;
  const NoGradGuard off;
  Two two(internal::net::DeviceMap{});
  check_pinned(two.way("w0", "cuda:0"),
               "cuda:0 of w0 and cuda:0 of w1 are one GPU: give each worker a GPU of its own "
               "(CUDA_VISIBLE_DEVICES)");
  const auto peer = two.spawn<Peer>();
  for (int i = 0; i < 3; ++i) echo(peer);
  CHECK(two.metric(0, "device_transfers_sent") == 0);
  CHECK(two.metric(0, "tensor_messages_by_pinned_sent") == 3);
  CHECK(two.metric(0, "tensor_bytes_by_pinned_sent") == 3 * 4 * kLarge);
}

TEST_CASE("a worker without NCCL is named on both sides, and tensors go by memory of the host") {
  if (!needs_gpus(2)) return;
  const NoGradGuard off;
  Two two;
  GroupEngine::of(two.worker(1)).devices().stay_out("its library was removed: install it");
  const std::string why = "w1 does without NCCL on cuda:1: its library was removed: install it";
  check_pinned(two.way("w0", "cuda:0"), why);
  check_pinned(two.way("w1", "cuda:1"), why);
  const GroupWay group = two.of_groups();
  CHECK(group.way == "memory of the host, then as on the CPU");
  CHECK(group.why == why);
  const auto peer = two.spawn<Peer>();
  for (int i = 0; i < 3; ++i) echo(peer);
  CHECK(two.metric(0, "device_transfers_sent") + two.metric(1, "device_transfers_sent") == 0);
}

TEST_CASE("a group with a worker without NCCL adds by memory of the host") {
  if (!needs_gpus(3)) return;
  const NoGradGuard off;
  sim_cuda::reset_nccl();
  const auto cluster = Cluster::in_process(3, hosting<Peer>());
  GroupEngine::of(*cluster->workers_here()[2]).devices().stay_out("its library was removed: install it");
  std::vector<RRef<Peer>> all;
  for (int r = 0; r < 3; ++r) all.push_back(cluster->spawn<Peer>(r));
  const Group group(all);
  std::vector<Future<double>> sums;
  for (size_t r = 0; r < 3; ++r) sums.push_back(all[r].call<&Peer::sum>(group, "cuda:" + std::to_string(r)));
  for (const auto& s : sums) CHECK(s.get() == 6.0);
  CHECK(sim_cuda::nccl_counters().collectives == 0);
}

TEST_CASE("workers with two versions of NCCL are told both, and exchange nothing by it") {
  if (!needs_gpus(2)) return;
  Two two;
  const TransferEnd newer{.place = {29901, 1, 0}, .why = ""};
  const CallFrameScope neutral({&two.worker(0)});
  const TransferEnd answer = kMeet.ask(two.worker(0), 1, newer, "cuda:1").get();
  CHECK_THAT(answer.why, Contains("cuda:0 of w0 has NCCL 2.99.1 and cuda:1 of w1 has NCCL 2.") &&
                             Contains("give both one version (TROUPE_NCCL names the file)"));
  CHECK(answer.turns.empty());
}

TEST_CASE("memory that a tensor from another GPU does not find is an error with a remedy") {
  if (!needs_gpus(2)) return;
  const NoGradGuard off;
  Two two;
  const auto peer = two.spawn<Peer>();
  REQUIRE(eventually([&] {
    echo(peer);
    return two.metric(0, "device_transfers_sent") > 0;
  }));
  const Tensor x = full({kLarge}, 2.0, {float32, gpu0});
  release_cached_memory(gpu1);
  sim_cuda::set_memory(1);
  CHECK_THAT(text_of([&] { peer.call<&Peer::same>(x).get(); }),
             Contains("no memory for float32 [524288] on cuda:1 of w1; free some there, or send less"));
  sim_cuda::set_memory(size_t{8} << 30);
  echo(peer);
}

// Run with each of these variables.
TEST_CASE("what keeps a process from NCCL is said, and tensors go by memory of the host") {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value ? value : "");
  };
  std::string why;
  if (const std::string file = variable("TROUPE_NCCL"); file == "0")
    why = "TROUPE_NCCL is 0: unset it";
  else if (!file.empty())
    why = "TROUPE_NCCL is \"" + file +
          "\", which cannot be loaded; set it to the file of NCCL 2.28.7 or newer, or unset it";
  else if (const std::string interface = variable("NCCL_SOCKET_IFNAME");
           interface.find("none") != std::string::npos)
    why = "NCCL_SOCKET_IFNAME is \"" + interface +
          "\", and this host has no such interface: unset it, or set it to one of lo";
  if (why.empty()) return skip_test("this needs TROUPE_NCCL=0, or another variable that keeps from NCCL");
  if (!needs_gpus(2)) return;
  const NoGradGuard off;
  Two two;
  const TensorWay way = two.way("w0", "cuda:0");
  CHECK(way.way == kPinned.way);
  CHECK_THAT(way.why, Contains("w1 does without NCCL on cuda:1: " + why));
  const auto peer = two.spawn<Peer>();
  for (int i = 0; i < 3; ++i) echo(peer);
  CHECK(two.metric(0, "tensor_messages_by_pinned_sent") == 3);
}
#endif
