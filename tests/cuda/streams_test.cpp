// Streams: each actor has its own, and tensors that several of them use are in order.
#include <catch2/catch.hpp>
#include <random>
#include <thread>

#include "core/base/call_frame.h"
#include "core/graph/copy_on_write.h"
#include "core/graph/inplace_write.h"
#include "core/memory/pinned_buffer.h"
#include "core/tensor/creation.h"
#include "core/tensor/elements.h"
#include "tests/cuda/gpus.h"
#include "tests/support/sim_cuda/sim.h"

using namespace troupe;

namespace {

using testing::needs_gpus;

using testing::gpu0, testing::gpu1;

// Runs f as an actor's method whose stream has that number.
template <class F>
auto on_stream(int number, F&& f) {
  CallFrame at = frame();
  at.device_stream = static_cast<uint8_t>(number);
  const CallFrameScope scope(at);
  return f();
}

// Eagerly, and on simulated GPUs by seeds.
template <class F>
void in_all_schedules(F&& f) {
  f();
#ifdef TROUPE_CUDA_SIM
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    INFO("seed " << seed);
    sim_cuda::schedule_by_seed(seed);
    f();
    sim_cuda::schedule_eagerly();
    CHECK(sim_cuda::take_fault() == "");
  }
#endif
}

void write(Tensor& t, double value) {
  begin_write(t, "a test");
  fill_elements(t, Scalar(value));
  t.bump_version("a test");
}

TEST_CASE("a stream reads what another one wrote before, and not what that writes later") {
  if (!needs_gpus(1)) return;
  in_all_schedules([] {
    Tensor t = on_stream(1, [] { return ones({500}, {float32, gpu0}); });
    on_stream(1, [&] { write(t, 2); });
    const Tensor seen = on_stream(2, [&] { return t.clone_data(); });
    const Tensor also = on_stream(3, [&] { return t.clone_data(); });
    on_stream(1, [&] { write(t, 3); });
    on_stream(4, [&] { write(t, 4); });
    const Tensor last = on_stream(2, [&] { return t.clone_data(); });
    CHECK(seen.to_vector<float>() == std::vector<float>(500, 2));
    CHECK(also.to_vector<float>() == std::vector<float>(500, 2));
    CHECK(last.to_vector<float>() == std::vector<float>(500, 4));
  });
}

TEST_CASE("memory is used again after all streams that read it") {
  if (!needs_gpus(1)) return;
  in_all_schedules([] {
    const size_t before = allocator_stats(gpu0).in_use;
    {
      Tensor t = on_stream(1, [] { return full({500}, 5, {float32, gpu0}); });
      const Tensor seen = on_stream(2, [&] { return t.clone_data(); });
      const Tensor also = on_stream(3, [&] { return t.clone_data(); });
      t = Tensor();
      Tensors over;
      for (int stream : {1, 2, 3})
        over.push_back(on_stream(stream, [] { return full({500}, 7, {float32, gpu0}); }));
      CHECK(seen.to_vector<float>() == std::vector<float>(500, 5));
      CHECK(also.to_vector<float>() == std::vector<float>(500, 5));
      for (const Tensor& o : over) CHECK(o.to_vector<float>() == std::vector<float>(500, 7));
    }
    CHECK(allocator_stats(gpu0).in_use == before);
  });
}

TEST_CASE("copies between GPUs are in the order of the streams that use them") {
  if (!needs_gpus(2)) return;
  in_all_schedules([] {
    Tensor t = on_stream(1, [] { return full({500}, 5, {float32, gpu0}); });
    Tensor there = on_stream(2, [&] { return t.data_on(gpu1); });
    on_stream(1, [&] { write(t, 6); });
    const Tensor back = on_stream(3, [&] { return there.data_on(gpu0); });
    on_stream(2, [&] { write(there, 7); });
    CHECK(back.to_vector<float>() == std::vector<float>(500, 5));
    CHECK(t.to_vector<float>() == std::vector<float>(500, 6));
    CHECK(there.to_vector<float>() == std::vector<float>(500, 7));
  });
}

TEST_CASE("chunks that several streams forward from pinned memory are there for a third one") {
  if (!needs_gpus(1)) return;
  constexpr size_t kBytes = 3 * PinnedBuffer::kChunk;
  in_all_schedules([] {
    Tensor t = on_stream(1, [] { return zeros({kBytes}, {uint8, gpu0}); });
    const auto pinned = backend_of(gpu0).pinned_buffer(kBytes, gpu0);
    std::fill_n(pinned->data(), kBytes, std::byte{5});
    pinned->there = t.storage();
    on_stream(2, [&] { pinned->forward(PinnedBuffer::kChunk); });
    on_stream(3, [&] { pinned->forward(kBytes); });
    const Tensor seen = on_stream(4, [&] { return t.clone_data(); });
    CHECK(bit_equal(seen, full({kBytes}, 5, uint8)));
  });
}

TEST_CASE("random programs on many streams and two GPUs give what the CPU gives") {
  if (!needs_gpus(2)) return;
  uint64_t seed = 0;
  in_all_schedules([&] {
    std::mt19937_64 random(++seed);
    const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
    std::vector<std::pair<Tensor, Tensor>> all;  // on a GPU, and on the CPU
    for (int i = 0; i < 6; ++i) all.emplace_back(full({64}, i, {float32, gpu0}), full({64}, i, float32));
    for (int step = 0; step < 150; ++step)
      on_stream(static_cast<int>(below(5)), [&] {
        auto &a = all[below(all.size())], &b = all[below(all.size())];
        const Device here = a.first.device();
        switch (below(7)) {
          case 0:
            write(a.first, step), write(a.second, step);
            break;
          case 1: {
            const Tensor x = b.first.data_on(here);
            begin_write(a.first, "a test"), begin_write(a.second, "a test");
            copy_elements(a.first.alias({20}, {1}, 7), x.alias({20}, {1}, 30).clone_data());
            copy_elements(a.second.alias({20}, {1}, 7), b.second.alias({20}, {1}, 30).clone_data());
            break;
          }
          case 2: {
            const Tensor x = b.first.data_on(here), sum = empty({64}, {float32, here}), wanted = empty({64});
            add_elements(sum, a.first, x);
            add_elements(wanted, a.second, b.second);
            b = {sum, wanted};
            break;
          }
          case 3:
            b = {internal::lazy_copy(a.first), internal::lazy_copy(a.second)};
            break;
          case 4:
            b = {a.first.clone_data(), a.second.clone_data()};
            break;
          case 5:
            b = {a.first.data_on(here == gpu0 ? gpu1 : gpu0), a.second.clone_data()};
            break;
          default:
            internal::own_elements(a.first);  // as if it went to another actor
        }
      });
    for (const auto& [got, wanted] : all) CHECK(bit_equal(got, wanted));
  });
}

TEST_CASE("threads with streams of their own read one tensor and let go of it at any time") {
  if (!needs_gpus(1)) return;
  const size_t before = allocator_stats(gpu0).in_use;
  for (int round = 0; round < 20; ++round) {
    Tensor t = on_stream(1, [&] { return full({64}, round, {float32, gpu0}); });
    std::vector<std::thread> threads;
    std::vector<std::vector<float>> seen(4);
    for (size_t i = 0; i < seen.size(); ++i)
      threads.emplace_back([&seen, i, t]() mutable {
        on_stream(static_cast<int>(i) + 2, [&] {
          const Tensor copy = t.clone_data();
          t = Tensor();
          seen[i] = copy.to_vector<float>();
        });
      });
    t = Tensor();
    for (auto& thread : threads) thread.join();
    for (const auto& values : seen) CHECK(values == std::vector<float>(64, static_cast<float>(round)));
  }
  CHECK(allocator_stats(gpu0).in_use == before);
}

#ifdef TROUPE_CUDA_SIM
TEST_CASE("a wait that another one covers is left out") {
  if (!needs_gpus(1)) return;
  const auto [a, b] = on_stream(5, [] {
    return std::pair(ones({10}, {float32, gpu0}), full({10}, 2, {float32, gpu0}));
  });
  const auto waits_of = [&](const Tensor& t) {
    const uint64_t before = sim_cuda::counters().waits;
    on_stream(6, [&] { t.clone_data(); });
    return sim_cuda::counters().waits - before;
  };
  on_stream(5, [&] { a.storage()->leaves(), b.storage()->leaves(); });
  CHECK(waits_of(a) == 1);
  CHECK(waits_of(a) == 0);
  CHECK(waits_of(b) == 0);
  on_stream(5, [&] { fill_elements(b, 3.0); });
  CHECK(waits_of(b) == 1);
}

TEST_CASE("who waits for a tensor that left does not wait for what its stream does later") {
  if (!needs_gpus(1)) return;
  const auto left_behind = [&](bool leaves) {
    size_t most = 0;
    for (uint64_t seed = 1; seed <= 50; ++seed) {
      sim_cuda::schedule_by_seed(seed);
      {
        const Tensor t = on_stream(7, [] { return ones({10}, {float32, gpu0}); });
        if (leaves) on_stream(7, [&] { t.storage()->leaves(); });
        const Tensor later = on_stream(7, [] { return full({10}, 2, {float32, gpu0}); });
        CHECK(on_stream(8, [&] { return t.to_vector<float>(); }) == std::vector<float>(10, 1));
        most = std::max(most, sim_cuda::pending());
      }
      sim_cuda::schedule_eagerly();
    }
    return most;
  };
  CHECK(left_behind(true) > 0);
  CHECK(left_behind(false) == 0);
}
#endif

}  // namespace
