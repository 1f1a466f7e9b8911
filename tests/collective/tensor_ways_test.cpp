// Which way tensors take between workers, as Cluster::ways() tells it, and what has gone so.
#include <catch2/catch.hpp>

#include <algorithm>

#include "actors/worker/reports.h"
#include "collective/lanes.h"
#include "collective/nccl/launcher.h"
#include "collective/nccl/why_not.h"
#include "collective/schedule/choice.h"
#include "net/socket/socket_transport.h"
#include "tests/support/eventually.h"
#include "tests/support/two_workers.h"
#include "troupe/troupe.h"
#include "troupe/ways/tensor_way.h"
#include "troupe/ways/ways_of_worker.h"

using namespace troupe;
using namespace troupe::testing;
using namespace troupe::internal::net;
using namespace troupe::internal::collective;
using Catch::Contains;
using internal::way_of;
using internal::WayFacts;
using internal::ways_of_all;

namespace {

constexpr int64_t kKiB = 1 << 10, kMiB = 1 << 20;

struct Taker : Actor {
  int64_t take(Tensor x) { return x.numel(); }
  static constexpr auto remote = methods<&Taker::take>;
};

struct ByTcp {
  std::array<std::unique_ptr<WorkerStack>, 2> stacks;
  explicit ByTcp(Encryption encryption) {
    for (WorkerId id = 0; id < 2; ++id) {
      const std::string name = "w" + std::to_string(id);
      stacks[id] = std::make_unique<WorkerStack>(internal::actors::WorkerOptions{
          .id = id, .name = name, .host = "host of " + name, .hosting = hosting<Taker>()});
      stacks[id]->use_sockets("a token for two workers", {}, "", encryption);
      stacks[id]->listen("tcp:127.0.0.1:0");
    }
    for (auto& s : stacks)
      for (auto& other : stacks) s->worker().members().add(other->member());
  }
  ~ByTcp() {
    for (auto& s : stacks) s->worker().disconnect();
  }
};

std::string line(const TensorWay& w) {
  return w.way + "|" + std::to_string(w.at_least) + "|" + w.below + "|" + w.why;
}

const TensorWay& cpu_way(const Ways& ways, const std::string& from, const std::string& to) {
  const auto at = std::ranges::find_if(ways.tensors, [&](const TensorWay& w) {
    return w.from == from && w.to == to && w.from_device == "cpu";
  });
  REQUIRE(at != ways.tensors.end());
  return *at;
}

std::map<std::string, int64_t> sent_by(internal::actors::Worker& worker) {
  std::map<std::string, int64_t> out;
  for (const auto& [name, value] : worker.metrics())
    if (name.starts_with("tensor_") && value) out[name] = value;
  return out;
}

// One tensor of float32 to w1 for each number of elements.
std::map<std::string, int64_t> after_sending(WorkerStack& driver, const std::vector<int64_t>& elements) {
  const auto taker = Here(driver.references()).spawn<Taker>(1);
  for (const int64_t n : elements) CHECK(taker.call<&Taker::take>(zeros({n})).get() == n);
  return sent_by(driver.worker());
}

}  // namespace

TEST_CASE("the way of a tensor follows from its devices and the connection", "[ways]") {
  const Device gpu0(static_cast<Device::Kind>(1), 0), gpu1(static_cast<Device::Kind>(1), 1);
  const LinkState memory, lends{.carrier = Carrier::unix_socket, .ring_up_to = 100, .lent_from = 60},
      ring{.carrier = Carrier::unix_socket, .ring_up_to = 100, .why_no_loan = "none here"},
      tcp{.carrier = Carrier::tcp}, tls{.carrier = Carrier::tls};
  CHECK(line(way_of({.link = memory})) == "memory|0||");
  CHECK(line(way_of({.link = lends, .same_host = true})) == "shared memory|60|a ring of shared memory|");
  CHECK(line(way_of({.link = ring, .same_host = true})) ==
        "a Unix socket|100|a ring of shared memory|none here");
  CHECK(line(way_of({.link = tcp})) == "TCP|0||they are on two hosts");
  CHECK_THAT(line(way_of({.link = tcp, .same_host = true})), Contains("TCP|0||") && Contains("Unix socket"));
  CHECK(line(way_of({.link = tls})) == "TLS|0||they are on two hosts");
  // Of GPUs.
  const auto gpus = [&](const LinkState& link, Device there, WayFacts f) {
    f.link = link;
    f.here = gpu0;
    f.there = there;
    return line(way_of(f));
  };
  CHECK(gpus(memory, gpu0, {}) == "memory|0||");
  CHECK(gpus(memory, gpu1, {}) == "a copy from GPU to GPU, in memory|0||");
  const WayFacts by_nccl{.library = "NCCL 2.28.9", .library_from = 1000};
  CHECK(gpus(lends, gpu1, by_nccl) == "NCCL 2.28.9|1000|pinned memory, then shared memory|");
  CHECK(gpus(tcp, gpu1, by_nccl) == "NCCL 2.28.9|1000|pinned memory, then TCP|");
  CHECK(gpus(lends, gpu0, {.why_not = "one GPU"}) ==
        "pinned memory, then shared memory|60|pinned memory, then a ring of shared memory|one GPU");
  CHECK(gpus(tls, gpu0, {.why_not = "encrypted"}) == "pinned memory, then TLS|0||encrypted");
}

TEST_CASE("two GPUs do without NCCL for reasons that name both, and what to do", "[ways]") {
  const NamedPlace a{"cuda:0 of w0", {22809, 1, 0}};
  CHECK(why_apart(a, {"cuda:0 of w1", {22809, 2, 0}}).empty());
  CHECK(why_apart(a, {"cuda:0 of w1", {23007, 2, 0}}) ==
        "cuda:0 of w0 has NCCL 2.28.9 and cuda:0 of w1 has NCCL 2.30.7: give both one version (TROUPE_NCCL "
        "names the file)");
  CHECK(why_apart(a, {"cuda:0 of w1", {22809, 1, 0}}) ==
        "cuda:0 of w0 and cuda:0 of w1 are one GPU: give each worker a GPU of its own "
        "(CUDA_VISIBLE_DEVICES)");
}

TEST_CASE("an interface for NCCL that this host has not is named, with those that it has", "[ways]") {
  const std::vector<std::string> here{"lo", "eth0", "docker0"};
  for (const char* fine : {"", "=lo", "eth", "=eth0:5000", "=ib0,eth0", "^docker", "^lo,docker"})
    CHECK(why_no_interface(fine, here) == "");
  for (const std::string none : {"=eth", "ib", "=eth1,eth2", "^lo,eth,docker", "^=lo,eth0,docker0"})
    CHECK(why_no_interface(none, here) == "NCCL_SOCKET_IFNAME is \"" + none +
                                              "\", and this host has no such interface: unset it, or set it "
                                              "to one of lo, eth0, docker0");
  const auto all = host_interfaces();
  CHECK(std::ranges::count(all, "lo") == 1);
}

TEST_CASE("workers of one process exchange tensors in memory", "[ways]") {
  const auto cluster = Cluster::in_process(3, hosting<Taker>());
  const Ways ways = cluster->ways();
  for (const char* from : {"w0", "w1", "w2"})
    for (const char* to : {"w0", "w1", "w2"})
      if (from != std::string_view(to)) CHECK(line(cpu_way(ways, from, to)) == "memory|0||");
  CHECK(std::ranges::count(ways.tensors, "cpu", &TensorWay::from_device) == 6);
  CHECK_THAT(ways.print(), Contains("w0, w1, w2 to each other  cpu"));
  const auto taker = cluster->spawn<Taker>("w1");
  const auto before = cluster->metrics("w0");
  taker.call<&Taker::take>(zeros({1000})).get();
  const auto after = cluster->metrics("w0");
  CHECK(after.at("tensor_messages_by_memory_sent") == before.at("tensor_messages_by_memory_sent") + 1);
  CHECK(after.at("tensor_bytes_by_memory_sent") == before.at("tensor_bytes_by_memory_sent") + 4000);
  CHECK(Cluster::in_process(1)->ways().print() == "there is one worker: its tensors stay where they are\n");
}

TEST_CASE("the ways of operations of groups are those that are chosen", "[ways]") {
  for (const int workers : {2, 3, 20}) {
    INFO(workers << " workers");
    const auto cluster = Cluster::in_process(workers);
    const Ways ways = cluster->ways();
    const auto listed = [&](const std::string& operation, size_t bytes) {
      std::string way;
      for (const GroupWay& w : ways.groups)
        if (w.operation == operation && w.devices == "cpu" && static_cast<size_t>(w.at_least) <= bytes)
          way = w.way;
      return way;
    };
    for (int i = 0; i < kCollectiveCount; ++i) {
      const auto c = static_cast<Collective>(i);
      if (c == Collective::barrier) continue;
      for (const size_t bytes :
           {size_t{0}, LaneBlock::kMost, LaneBlock::kMost + 1, kWholeBytes, kWholeBytes + 1, kWholeBytesOfTwo,
            kWholeBytesOfTwo + 1, size_t{3} * kLentBytes - 1, size_t{3} * kLentBytes, kHalvingBytes,
            kHalvingBytes + 1, size_t{25} << 20, size_t{1} << 30}) {
        INFO(name(c) << " of " << bytes << " bytes");
        const auto ranks = static_cast<size_t>(workers);
        const Choice chosen = choose({c, ranks, bytes});
        const std::string without =
            goes_by_memory(c, ranks, bytes, 1) ? ", without messages once memory is shared" : "";
        CHECK(listed(std::string(name(c)), bytes) ==
              std::string(name(chosen.way)) + (chosen.lends ? ", in shared memory" : without));
      }
    }
  }
}

TEST_CASE("between processes of a host large tensors are lent, and small ones go by the ring", "[ways]") {
  TwoWorkers w(hosting<Taker>());
  const Ways ways = ways_of_all(w.worker(0));
  for (const char* from : {"w0", "w1"})
    CHECK(line(cpu_way(ways, from, from[1] == '0' ? "w1" : "w0")) ==
          "shared memory|65536|a ring of shared memory|");
  const auto taker = w.spawn<Taker>();
  for (const int64_t n : {int64_t{10}, 64 * kKiB, 64 * kKiB})
    CHECK(taker.call<&Taker::take>(zeros({n})).get() == n);
  CHECK(sent_by(w.worker(0)) == std::map<std::string, int64_t>{{"tensor_messages_by_loan_sent", 2},
                                                               {"tensor_bytes_by_loan_sent", 512 * kKiB},
                                                               {"tensor_messages_by_ring_sent", 1},
                                                               {"tensor_bytes_by_ring_sent", 40}});
}

TEST_CASE("where shared memory is switched off the ways say so, and tensors go by sockets", "[ways]") {
  SocketLimits limits;
  limits.ring_bytes = limits.arena_bytes = 0;
  TwoWorkers w(hosting<Taker>(), {}, limits);
  CHECK(line(cpu_way(ways_of_all(w.worker(0)), "w0", "w1")) ==
        "a Unix socket|0||shared memory is switched off (TROUPE_SHARED_MEMORY)");
  w.spawn<Taker>().call<&Taker::take>(zeros({kMiB})).get();
  CHECK(sent_by(w.worker(0)) == std::map<std::string, int64_t>{{"tensor_messages_by_socket_sent", 1},
                                                               {"tensor_bytes_by_socket_sent", 4 * kMiB}});
}

TEST_CASE("between hosts tensors go by TCP, or encrypted", "[ways]") {
  for (const bool encrypted : {false, true}) {
    ByTcp pair(encrypted ? Encryption::always : Encryption::off);
    WorkerStack& driver = *pair.stacks[0];
    CHECK(line(cpu_way(ways_of_all(driver.worker()), "w1", "w0")) ==
          (encrypted ? "TLS|0||they are on two hosts" : "TCP|0||they are on two hosts"));
    const std::string by = encrypted ? "_by_tls_sent" : "_by_socket_sent";
    CHECK(after_sending(driver, {100, 1000}) ==
          std::map<std::string, int64_t>{{"tensor_messages" + by, 2}, {"tensor_bytes" + by, 4400}});
  }
}

TEST_CASE("ways are counted on connections that have ended, too", "[ways]") {
  ByTcp pair(Encryption::off);
  WorkerStack& driver = *pair.stacks[0];
  after_sending(driver, {100});
  pair.stacks[1]->worker().disconnect();
  REQUIRE(eventually([&] { return driver.worker().transport().links().empty(); }));
  CHECK(sent_by(driver.worker()) == std::map<std::string, int64_t>{{"tensor_messages_by_socket_sent", 1},
                                                                   {"tensor_bytes_by_socket_sent", 400}});
}

TEST_CASE("lists of ways have what pairs of workers share once", "[ways]") {
  const auto way = [](const char* from, const char* to, const char* text) {
    return TensorWay{.from = from, .from_device = "cpu", .to = to, .to_device = "cpu", .way = text};
  };
  Ways ways{{way("w0", "w1", "memory"), way("w1", "w0", "memory"), way("w0", "w2", "TCP"),
             way("w1", "w2", "TCP"), way("w2", "w0", "TCP"), way("w2", "w1", "TCP")},
            {}};
  ways.tensors[2].at_least = 65536;
  ways.tensors[2].below = "ring";
  ways.tensors[2].why = "far";
  CHECK(ways.print() ==
        "Tensors in messages:\n"
        "workers               device  arrives on  way     from    what is smaller  why\n"
        "w0, w1 to each other  cpu     cpu         memory  any\n"
        "w0 to w2              cpu     cpu         TCP     64 KiB  ring             far\n"
        "w1 to w2              cpu     cpu         TCP     any\n"
        "w2 to w0, w1          cpu     cpu         TCP     any\n");
}
