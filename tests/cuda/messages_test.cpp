// Tensors of GPUs in messages to another process, step by step: what the device, the connection and the
// receiver do beside each other.
#include <sys/socket.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <optional>
#include <variant>

#include "core/tensor/creation.h"
#include "net/protocol/frame.h"
#include "net/socket/connection/frame_reader.h"
#include "net/socket/connection/write_queue.h"
#include "net/socket/loop/sockets.h"
#include "net/wire/wire.h"
#include "tests/cuda/gpus.h"
#include "tests/support/error_of.h"
#ifdef TROUPE_CUDA_SIM
#include "tests/support/sim_cuda/sim.h"
#endif

using namespace troupe;

namespace {

namespace net = internal::net;
using testing::needs_gpus, testing::gpu0;

constexpr int64_t kCount = 8 << 18;  // of float32: eight chunks

net::Message call_with(const Tensor& t) {
  net::Call call;
  call.id = 1;
  call.args = {Value(t)};
  return net::encode(call);
}

// A connection's two halves without its threads.
struct Link {
  Link() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    near = net::Stream(internal::Descriptor(ends[0])), far = internal::Descriptor(ends[1]);
  }
  void push(net::Message message) {
    auto head = net::message_head(message, {});
    queue.push(std::move(head), false, std::move(message));
  }
  // What has arrived by now.
  void read() {
    std::vector<std::byte> bytes(1 << 20);
    for (ssize_t n; !frame && (n = ::recv(far.get(), bytes.data(), bytes.size(), 0)) > 0;) {
      std::span<const std::byte> rest(bytes.data(), static_cast<size_t>(n));
      while (!rest.empty() && !frame) frame = reader.feed(rest);
    }
  }
  // All bytes, as they are written.
  std::vector<std::byte> sent() {
    std::vector<std::byte> all(queue.bytes());
    for (size_t n = 0; n < all.size();) {
      queue.write_to(near, 1);
      n += static_cast<size_t>(::recv(far.get(), all.data() + n, all.size() - n, 0));
    }
    return all;
  }
  Tensor received() {
    while (!frame) {
      queue.write_to(near, SIZE_MAX);
      read();
    }
    net::Packet packet = net::decode(std::move(frame->message));
    return *std::get<net::Call>(packet).args[0].get_if<Tensor>();
  }
  net::Stream near;
  internal::Descriptor far;
  net::WriteQueue queue;
  net::FrameReader reader{net::Limits{}};
  std::optional<net::ReadFrame> frame;
};

Tensor counted(int64_t n, float first) {
  std::vector<float> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), first);
  return tensor(values);
}

TEST_CASE("a tensor of a GPU goes by a connection to a GPU") {
  if (!needs_gpus(1)) return;
  const size_t before = allocator_stats(gpu0).in_use;
  for (const int64_t n : {int64_t{1}, int64_t{300'000}, kCount, kCount + 5}) {
    INFO(n);
    const Tensor here = counted(n, 3);
    Link link;
    link.push(call_with(here.data_on(gpu0)));
    const Tensor got = link.received();
    CHECK(got.device() == gpu0);
    CHECK(bit_equal(got, here));
  }
  CHECK(allocator_stats(gpu0).in_use == before);
  CHECK(allocator_stats(gpu0).pinned == 0);
}

#ifdef TROUPE_CUDA_SIM
// f(link, host's copy of the tensor, its message) under many schedules, after which nothing is left.
template <class F>
void on_links(F&& f, bool fails = false) {
  if (!needs_gpus(1)) return;
  size_t events = 0;
  const size_t before = allocator_stats(gpu0).in_use;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    INFO("seed " << seed);
    const Tensor here = counted(kCount, static_cast<float>(seed));
    sim_cuda::schedule_by_seed(seed);
    {
      Link link;
      f(link, here, call_with(here.data_on(gpu0)));
    }
    sim_cuda::schedule_eagerly();
    REQUIRE(sim_cuda::take_fault().empty() != fails);
    REQUIRE(allocator_stats(gpu0).in_use == before);
    REQUIRE(allocator_stats(gpu0).pinned == 0);
    if (seed == 1) events = sim_cuda::events();
    REQUIRE(sim_cuda::events() <=
            events + 16);  // as many more as a message needs, if not all were free in time
  }
}

TEST_CASE("the first bytes are written while the device still copies the last ones") {
  on_links([](Link& link, const Tensor& here, net::Message message) {
    const PinnedBuffer* const pinned = message.buffers[0].pinned;
    REQUIRE(pinned);
    link.push(std::move(message));
    const size_t all = link.queue.bytes();
    link.queue.write_to(link.near, 1);
    CHECK(link.queue.bytes() < all);
    CHECK(sim_cuda::pending() > 0);
    CHECK(pinned->data()[pinned->size() - 1] == std::byte{0xff});  // not here yet
    CHECK(bit_equal(link.received(), here));
  });
}

TEST_CASE("a chunk that is written without waiting for it is found in every schedule") {
  on_links([](Link& link, const Tensor& here, net::Message message) {
    for (const bool waits : {false, true}) {
      net::Message copy = message;
      if (!waits) copy.buffers[0].pinned = nullptr;
      link.push(std::move(copy));
      const std::vector<std::byte> sent = link.sent();
      const bool same = std::equal(sent.end() - kCount * 4, sent.end(), here.bytes());
      CHECK(same == waits);
    }
  });
}

TEST_CASE("the receiver's device copies chunks as they arrive, and nobody waits for it") {
  on_links([](Link& link, const Tensor& here, net::Message message) {
    link.push(std::move(message));
    const auto waits = [] { return sim_cuda::counters().synchronizations; };
    const auto read = [&] {
      link.queue.write_to(link.near, 1);
      const uint64_t before = waits();
      link.read();
      CHECK(waits() == before);
    };
    while (link.queue.bytes() > size_t{4} << 20) read();
    sim_cuda::reset_counters();
    while (!link.frame) read();
    CHECK(sim_cuda::counters().copies == 4);
    const uint64_t before = waits();
    const Tensor got = link.received();
    CHECK(waits() == before);
    CHECK(got.device() == gpu0);
    CHECK(bit_equal(got, here));
  });
}

TEST_CASE("a connection that ends leaves pinned memory to the copies that still write there") {
  on_links([](Link& link, const Tensor&, net::Message message) {
    link.push(std::move(message));
    link.queue.write_to(link.near, 1);
    link.queue.clear();
    CHECK(allocator_stats(gpu0).pinned > 0);
  });
}

TEST_CASE("a receiver that gives up in the middle of a message leaves pinned memory to the device") {
  on_links([](Link& link, const Tensor&, net::Message message) {
    link.push(std::move(message));
    while (link.queue.bytes() > size_t{4} << 20) {
      link.queue.write_to(link.near, 1);
      link.read();
    }
    link.queue.clear();
  });
}

TEST_CASE("a device that fails while its tensor is written is an error of the writer") {
  on_links(
      [](Link& link, const Tensor&, net::Message message) {
        link.push(std::move(message));
        link.queue.write_to(link.near, 1);
        std::byte nothing;
        backend_of(gpu0).free(&nothing, 1, gpu0, 0);  // a fault, after which all calls fail
        const std::string text = testing::text_of([&] {
          while (link.queue.write_to(link.near, SIZE_MAX) == net::WriteQueue::Outcome::blocked) link.read();
        });
        CHECK_THAT(text,
                   Catch::StartsWith("[cuda] ") && Catch::Contains("on cuda:0: cudaErrorIllegalAddress"));
        link.queue.clear();
      },
      true);
}

TEST_CASE("without pinned memory a message is whole before it is sent") {
  if (!needs_gpus(1)) return;
  release_cached_memory(gpu0);
  sim_cuda::set_pinned_memory(0);
  on_links([](Link& link, const Tensor& here, net::Message message) {
    CHECK(message.buffers[0].pinned == nullptr);
    link.push(std::move(message));
    CHECK(bit_equal(link.received(), here));
  });
  sim_cuda::set_pinned_memory(SIZE_MAX);
}
#endif

}  // namespace
