// Tensors of GPUs in messages to another process: by way of pinned memory, while the connection writes and
// reads.
#include "tests/cuda/gpus.h"
#include "tests/cuda_train/runs.h"
#include "tests/support/two_workers.h"
#ifdef TROUPE_CUDA_SIM
#include "tests/support/sim_cuda/sim.h"
#endif

using namespace troupe;
using namespace troupe::testing;

namespace {

namespace net = troupe::internal::net;

struct Echo : Actor {
  Tensor same(Tensor x) { return x; }
  std::vector<Tensor> more(std::vector<Tensor> all) {
    for (Tensor& t : all) t = t.dtype() == boolean ? t : t + 1;
    return all;
  }
  std::string place(Tensor x) { return x.device().str(); }
  static constexpr auto remote = methods<&Echo::same, &Echo::more, &Echo::place>;
};

size_t pinned_bytes() { return allocator_stats(gpu0).pinned + allocator_stats(gpu1).pinned; }

Tensor numbers(int64_t count, double first) { return arange(first, first + static_cast<double>(count), 1.0); }

// By the socket alone, by the ring and the socket, and with the arena.
std::vector<net::SocketLimits> ways() {
  net::SocketLimits socket, ring;
  socket.ring_bytes = socket.arena_bytes = ring.arena_bytes = 0;
  return {socket, ring, {}};
}

void echo_on(const net::SocketLimits& limits) {
  TwoWorkers two(hosting<Echo>(), {}, limits);
  const auto echo = two.spawn<Echo>();
  const NoGradGuard off;
  for (const int64_t count : {1, 1000, 70'000, 700'001}) {
    const Tensor here = numbers(count, 3), x = here.to("cuda:0") * 2;
    const Tensor back = echo.call<&Echo::same>(x).get();
    CHECK(back.device() == Device("cuda:0"));
    CHECK(bit_equal(back, here * 2));
  }
  const Tensor wide = reshape(numbers(600'000, 1), {600, 1000});
  const std::vector<Tensor> all = {numbers(300'000, 1).to("cuda:1"), transpose(wide.to("cuda:0"), 0, 1),
                                   tensor({1, 2, 3}).to("cuda:0"), zeros({0, 2}, {float32, "cuda:0"}),
                                   numbers(5, 1)};
  const std::vector<Tensor> got = echo.call<&Echo::more>(all).get();
  REQUIRE(got.size() == all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    INFO(i);
    CHECK(got[i].device() == all[i].device());
    CHECK(bit_equal(got[i], all[i].to(cpu) + 1));
  }
  const Tensor truth = (numbers(100'000, 0) > 50.0), where = truth.to("cuda:0");
  CHECK(bit_equal(echo.call<&Echo::same>(where).get(), truth));
  // What is written after the call is not what was sent.
  Tensor x = numbers(700'000, 1).to("cuda:0");
  const auto sent = echo.call<&Echo::same>(x);
  x.fill_(0);
  CHECK(bit_equal(sent.get(), numbers(700'000, 1)));
}

}  // namespace

TEST_CASE("tensors of GPUs go to another process and back, whichever way the bytes take") {
  if (!needs_gpus(2)) return;
  const std::vector<size_t> before = gpu_bytes();
  for (const net::SocketLimits& limits : ways()) echo_on(limits);
  CHECK(gpu_bytes() == before);
  CHECK(pinned_bytes() == 0);
}

#ifdef TROUPE_CUDA_SIM
TEST_CASE("messages with tensors of GPUs are whole under every schedule") {
  if (!needs_gpus(2)) return;
  const std::vector<size_t> before = gpu_bytes();
  for (uint64_t seed = 1; seed <= seeds(50); ++seed) {
    INFO("seed " << seed);
    sim_cuda::schedule_by_seed(seed);
    echo_on(ways()[seed % 3]);
    sim_cuda::schedule_eagerly();
    REQUIRE(sim_cuda::take_fault() == "");
    REQUIRE(gpu_bytes() == before);
    REQUIRE(pinned_bytes() == 0);
  }
}

TEST_CASE("without pinned memory messages go by way of ordinary memory") {
  if (!needs_gpus(2)) return;
  const std::vector<size_t> before = gpu_bytes();
  release_cached_memory("cuda:0");
  release_cached_memory("cuda:1");
  sim_cuda::set_pinned_memory(0);
  for (const net::SocketLimits& limits : ways()) echo_on(limits);
  sim_cuda::set_pinned_memory(SIZE_MAX);
  CHECK(gpu_bytes() == before);
}
#endif
