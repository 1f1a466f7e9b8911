// Tensors of messages that go from GPU to GPU: by NCCL, in turns.
#include <chrono>
#include <cstdlib>
#include <thread>

#include "collective/nccl/transfers.h"
#include "tests/cuda/gpus.h"
#include "tests/cuda_groups/schedules.h"
#include "tests/support/error_of.h"
#include "tests/support/eventually.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"
#ifdef TROUPE_CUDA_SIM
#include "tests/support/sim_cuda/nccl_sim.h"
#include "tests/support/sim_cuda/sim.h"
#endif

using namespace troupe;
using namespace troupe::testing;
using namespace std::chrono_literals;
using Catch::Contains;

#ifdef TROUPE_CUDA_SIM  // real NCCL wants a process for each GPU of a pair
namespace {

struct Peer : Actor {
  Tensor same(Tensor x) { return x; }
  std::vector<Tensor> more(std::vector<Tensor> all) {
    for (Tensor& t : all)
      if (t.defined() && t.dtype() != boolean) t = t + 1;
    return all;
  }
  void note(Tensor x) { seen.push_back(x.flatten()[0].item()); }
  void note_number(double x) { seen.push_back(x); }
  std::vector<double> notes() { return std::exchange(seen, {}); }
  // Sends tensors to another one, whose answers it adds up.
  Task<double> talk(RRef<Peer> other, std::string device, int64_t rounds) {
    double sum = 0;
    std::vector<Future<Tensor>> answers;
    for (int64_t i = 0; i < rounds; ++i)
      answers.push_back(other.call<&Peer::same>(
          full({100 + 37 * (i % 5)}, static_cast<double>(i), {float32, Device(device)})));
    for (auto& a : answers) {
      const Tensor y = co_await a;
      sum += (y * 1.0).to(cpu).flatten()[0].item();
    }
    co_return sum;
  }
  std::vector<double> seen;
  static constexpr auto remote =
      methods<&Peer::same, &Peer::more, &Peer::note, &Peer::note_number, &Peer::notes, &Peer::talk>;
};

struct Layer : nn::ModuleActor<nn::Linear> {
  explicit Layer(int64_t size) : ModuleActor(size, size) {}
  Tensor forward(Tensor x) { return tanh(net(x)); }
  static constexpr auto remote = methods<&Layer::forward>;
};

// Each worker of a process is taken for a process with one GPU, that of its number.
struct Workers {
  explicit Workers(int count, size_t from = 1) {
    sim_cuda::reset_nccl();
    internal::collective::set_transfers_in_process(true, from);
    ClusterOptions options;
    for (int a = 0; a < count; ++a)
      for (int b = a + 1; b < count; ++b)
        options.device_maps.push_back({"w" + std::to_string(a),
                                       "w" + std::to_string(b),
                                       {{"cuda:" + std::to_string(a), "cuda:" + std::to_string(b)}}});
    cluster = Cluster::in_process(count, hosting<Peer, Layer>(), options);
    for (int w = 0; w < count; ++w) peers.push_back(cluster->spawn<Peer>(w));
  }
  ~Workers() {
    peers.clear();
    cluster.reset();
    internal::collective::set_transfers_in_process(false);
  }
  int64_t sum(const char* metric) const {
    int64_t all = 0;
    for (const auto& name : cluster->workers()) all += cluster->metrics(name).at(metric);
    return all;
  }
  // Until a tensor to worker `to` and its answer have gone from GPU to GPU: the first ones go another way.
  void meet(size_t to, int64_t bytes = 40) const {
    const int64_t before = sum("device_transfers_received_sent");
    REQUIRE(eventually([&] {
      (void)peers[to].call<&Peer::same>(full({bytes}, 1.0, {uint8, gpu0})).get();
      return sum("device_transfers_received_sent") >= before + 2;
    }));
  }
  bool nothing_is_left() const {
    return eventually([&] {
      return sum("device_collectives") == 0 && sum("device_turns") == 0 && sum("parked_packets") == 0;
    });
  }
  std::unique_ptr<Cluster> cluster;
  std::vector<RRef<Peer>> peers;
};

}  // namespace

TEST_CASE("tensors of calls and replies go from GPU to GPU") {
  if (!needs_gpus(2)) return;
  const NoGradGuard off;
  in_schedules(4, [] {
    Workers w(2);
    w.meet(1);
    const uint64_t before = sim_cuda::nccl_counters().transfers;
    const Tensor here = arange(0.0, 70'000.0, 1.0), x = here.to(gpu0) * 2;
    const Tensor back = w.peers[1].call<&Peer::same>(x).get();
    CHECK(back.device() == gpu0);
    CHECK(bit_equal(back, here * 2));
    CHECK(sim_cuda::nccl_counters().transfers >= before + 2);
    // Several in a message, views, and those that go with it.
    const Tensor wide = reshape(arange(0.0, 600.0, 1.0), {20, 30});
    const std::vector<Tensor> all = {here.to(gpu0),
                                     transpose(wide.to(gpu0), 0, 1),
                                     wide.to(gpu0)[3],
                                     tensor({1, 2, 3}).to(gpu0),
                                     zeros({0, 2}, {float32, gpu0}),
                                     Tensor(),
                                     (wide > 5.0).to(gpu0),
                                     here};
    const std::vector<Tensor> got = w.peers[1].call<&Peer::more>(all).get();
    REQUIRE(got.size() == all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      INFO(i);
      REQUIRE(got[i].defined() == all[i].defined());
      if (!got[i].defined()) continue;
      CHECK(got[i].device() == all[i].device());
      CHECK(bit_equal(got[i], all[i].dtype() == boolean ? all[i].to(cpu) : all[i].to(cpu) + 1));
    }
    CHECK(w.nothing_is_left());
  });
}

TEST_CASE("tensors go from GPU to GPU without a wait of the host") {
  if (!needs_gpus(2)) return;
  const NoGradGuard off;
  sim_cuda::schedule_eagerly();
  Workers w(2);
  w.meet(1);
  const Tensor x = full({70'000}, 3.0, {float32, gpu0});
  const auto there_and_back = [&] {
    return w.peers[1].call<&Peer::more>(std::vector<Tensor>{x}).get()[0] * 2;
  };
  (void)there_and_back();
  const uint64_t before = sim_cuda::nccl_counters().transfers;
  sim_cuda::reset_counters();
  Tensor back;
  for (int i = 0; i < 3; ++i) back = there_and_back();
  CHECK(sim_cuda::counters().synchronizations == 0);
  CHECK(sim_cuda::nccl_counters().transfers == before + 6);
  CHECK(back.equal(full({70'000}, 8.0, {float32, gpu0})));
  CHECK(sim_cuda::take_fault() == "");
}

TEST_CASE("tensors go from GPU to GPU from 1 MiB of a message on") {
  if (!needs_gpus(2)) return;
  const NoGradGuard off;
  const size_t from = internal::collective::transfers_from();
  if (!std::getenv("TROUPE_NCCL_FROM")) CHECK(from == size_t{1} << 20);
  const auto mib = static_cast<int64_t>(from);
  Workers w(2, from);
  w.meet(1, mib);
  const auto of = [](int64_t bytes) { return full({bytes}, 3.0, {uint8, gpu0}); };
  const auto sent_with = [&](const std::vector<Tensor>& all) {
    const uint64_t before = sim_cuda::nccl_counters().transfers;
    for (const Tensor& t : w.peers[1].call<&Peer::more>(all).get()) CHECK(t.equal(of(t.size(0)) + 1));
    return sim_cuda::nccl_counters().transfers - before;
  };
  CHECK(sent_with({of(mib - 1)}) == 0);
  CHECK(sent_with({of(mib)}) == 2);  // and the answer
  CHECK(sent_with({of(mib / 2), of(mib - mib / 2)}) == 4);
  CHECK(w.nothing_is_left());
  CHECK(sim_cuda::take_fault() == "");
}

TEST_CASE("what is written after a call is not what goes from GPU to GPU") {
  if (!needs_gpus(2)) return;
  const NoGradGuard off;
  in_schedules(8, [] {
    Workers w(2);
    w.meet(1);
    for (int i = 0; i < 5; ++i) {
      Tensor x = full({5000}, 1.0 + i, {float32, gpu0});
      const auto sent = w.peers[1].call<&Peer::same>(x);
      x.fill_(0);
      CHECK(bit_equal(sent.get(), full({5000}, 1.0 + i)));
    }
  });
}

TEST_CASE("messages keep their order, whichever way their tensors go") {
  if (!needs_gpus(2)) return;
  const NoGradGuard off;
  in_schedules(4, [] {
    Workers w(2);
    w.meet(1);
    std::vector<double> expected;
    for (int i = 0; i < 40; ++i) {
      expected.push_back(i);
      if (i % 3 == 0)
        w.peers[1].tell<&Peer::note_number>(static_cast<double>(i));
      else
        w.peers[1].tell<&Peer::note>(full({i % 3 == 1 ? 3000 : 2}, i, {float32, i % 3 == 1 ? gpu0 : cpu}));
    }
    CHECK(w.peers[1].call<&Peer::notes>().get() == expected);
    CHECK(w.nothing_is_left());
  });
}

TEST_CASE("tensors that cross each other from GPU to GPU do not lock up") {
  if (!needs_gpus(3)) return;
  const NoGradGuard off;
  in_schedules(6, [] {
    Workers w(3);
    for (int round = 0; round < 20 && w.sum("device_transfers_received_sent") < 200; ++round) {
      std::vector<Future<double>> sums;
      for (size_t a = 0; a < 3; ++a)
        for (size_t b = 0; b < 3; ++b)
          if (a != b)
            sums.push_back(
                w.peers[a].call<&Peer::talk>(w.peers[b], "cuda:" + std::to_string(a), int64_t{20}));
      for (const auto& sum : sums) CHECK(sum.get() == 190.0);
    }
    CHECK(w.nothing_is_left());
    CHECK(w.sum("device_transfers_received_sent") > 100);
    CHECK(w.sum("device_transfers_sent") == w.sum("device_transfers_received_sent"));
  });
}

TEST_CASE("gradients go from GPU to GPU") {
  if (!needs_gpus(2)) return;
  in_schedules(3, [] {
    Workers w(2);
    {
      const NoGradGuard off;
      w.meet(1);
    }
    const auto layer = w.cluster->spawn<Layer>(1, int64_t{64});
    std::vector<double> losses[2];
    for (const char* place : {"cpu", "cuda"}) {
      const bool on_gpu = place[1] == 'u';
      const auto net = w.cluster->spawn<Layer>(1, int64_t{64});
      nn::load_remote_state_dict(net, nn::remote_state_dict(layer).get()).get();
      if (on_gpu) nn::remote_to(net, "cuda:1").get();
      optim::Distributed<optim::SGD> optimizer({net}, {.lr = 0.1});
      const int64_t before = w.sum("device_transfers_received_sent");
      Tensor x = (reshape(arange(0.0, 1024.0, 1.0), {16, 64}) / 1024.0).to(on_gpu ? gpu0 : cpu);
      for (int i = 0; i < 4; ++i) {
        autograd::Context step(*w.cluster);
        x.requires_grad_();
        const Tensor loss = mean(net(x).get() * net(x * 0.5).get());
        step.backward(loss);
        losses[on_gpu].push_back(loss.item() + sum(autograd::take_context_gradient(x).to(cpu)).item());
        optimizer.step(step);
      }
      CHECK((w.sum("device_transfers_received_sent") > before) == on_gpu);
    }
    for (size_t i = 0; i < 4; ++i) CHECK(losses[1][i] == Approx(losses[0][i]).epsilon(1e-4));
    nothing_left(*w.cluster);
    CHECK(w.nothing_is_left());
  });
}

TEST_CASE("a tensor for which the receiver's GPU has no memory is an error of its call alone") {
  if (!needs_gpus(2)) return;
  const NoGradGuard off;
  Workers w(2);
  w.meet(1);
  const Tensor x = full({300'000}, 2.0, {float32, gpu0});
  release_cached_memory(gpu1);
  sim_cuda::set_memory(1);
  CHECK_THAT(text_of([&] { w.peers[1].call<&Peer::same>(x).get(); }),
             Contains("no memory for float32 [300000] on cuda:1 of w1"));
  sim_cuda::set_memory(size_t{8} << 30);
  CHECK(bit_equal(w.peers[1].call<&Peer::same>(x).get(), x.to(cpu)));
  CHECK(w.nothing_is_left());
}

TEST_CASE("in one process, and on one GPU, tensors stay where they are") {
  if (!needs_gpus(2)) return;
  const NoGradGuard off;
  {
    Workers w(2);
    internal::collective::set_transfers_in_process(false);
    for (int i = 0; i < 5; ++i)
      CHECK(bit_equal(w.peers[1].call<&Peer::same>(full({9}, 1.0 * i, {float32, gpu0})).get(),
                      full({9}, 1.0 * i)));
    CHECK(w.sum("device_transfers_sent") == 0);
  }
  sim_cuda::reset_nccl();
  internal::collective::set_transfers_in_process(true);
  {
    auto cluster = Cluster::in_process(2, hosting<Peer>());
    const auto peer = cluster->spawn<Peer>(1);
    for (int i = 0; i < 5; ++i)
      CHECK(bit_equal(peer.call<&Peer::same>(full({9}, 1.0 * i, {float32, gpu0})).get(), full({9}, 1.0 * i)));
    CHECK(cluster->metrics("w0").at("device_transfers_sent") == 0);
  }
  internal::collective::set_transfers_in_process(false);
}

TEST_CASE("a worker that stops while tensors go from GPU to GPU leaves nothing behind") {
  if (!needs_gpus(2)) return;
  const NoGradGuard off;
  in_schedules(4, [] {
    Workers w(2);
    w.meet(1);
    for (int i = 0; i < 10; ++i) w.peers[1].tell<&Peer::note>(full({3000}, i, {float32, gpu0}));
  });
}
#endif
