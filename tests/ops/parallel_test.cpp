// Loops on several threads: every piece once, errors come out, and the bits are those of one thread.
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "core/base/error.h"
#include "ops/cpu/loops/parallel_for.h"
#include "ops/dispatch/threads.h"
#include "ops/ops.h"

using namespace troupe;

namespace {

using ops::on_cpu::parallel_for;

constexpr double kLong = 1e9;  // work that is worth a thread

struct WithThreads {
  explicit WithThreads(int n) { ops::set_num_threads(n); }
  ~WithThreads() { ops::set_num_threads(before); }
  int before = ops::num_threads();
};

TEST_CASE("parallel_for calls each piece once, whatever the number of threads") {
  for (const int threads : {1, 2, 3, 7}) {
    const WithThreads scope(threads);
    for (const int64_t pieces : {0, 1, 2, 3, 100}) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(pieces));
      parallel_for(pieces, kLong, [&](int64_t i) { ++calls[static_cast<size_t>(i)]; });
      for (const auto& c : calls) CHECK(c == 1);
    }
  }
}

TEST_CASE("parallel_for uses its threads, and keeps small loops on the caller's") {
  const WithThreads scope(2);
  std::atomic<int> inside{0};
  parallel_for(2, kLong, [&](int64_t) {  // neither piece ends before the other has begun
    ++inside;
    while (inside < 2) std::this_thread::yield();
  });
  CHECK(inside == 2);
  const auto self = std::this_thread::get_id();
  parallel_for(8, 1, [&](int64_t) { CHECK(std::this_thread::get_id() == self); });
}

TEST_CASE("a parallel_for inside another, and those of several threads at once, all finish") {
  const WithThreads scope(3);
  std::atomic<int> sum{0};
  const auto nested = [&] {
    parallel_for(10, kLong, [&](int64_t) { parallel_for(10, kLong, [&](int64_t) { ++sum; }); });
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int j = 0; j < 20; ++j) nested();
    });
  for (auto& t : threads) t.join();
  CHECK(sum == 4 * 20 * 100);
}

TEST_CASE("an exception in a piece comes out of parallel_for, which can be used again") {
  const WithThreads scope(2);
  for (int i = 0; i < 3; ++i) {
    CHECK_THROWS_AS(parallel_for(50, kLong,
                                 [](int64_t piece) {
                                   if (piece == 7) throw_invalid("piece 7");
                                 }),
                    Error);
    std::atomic<int> calls{0};
    parallel_for(50, kLong, [&](int64_t) { ++calls; });
    CHECK(calls == 50);
  }
}

TEST_CASE("large tensors have the same bits with any number of threads") {
  Generator g(3);
  const auto make = [&](const Shape& shape) { return ops::randn(shape, g); };
  const Tensor a = make({700, 301}), b = make({700, 301}), row = make({301}), column = make({700, 1}),
               wide = make({3, 400, 200}), at = make({301, 700}).transpose(0, 1);
  const auto results = [&] {
    const Tensor updated = a.clone_data();
    ops::add_(updated, at, 0.5);
    return Tensors{ops::add(a, b),
                   ops::mul(a, at),
                   ops::add(a, row),
                   ops::mul(at, column),
                   ops::exp(at),
                   ops::relu(a),
                   ops::sum(a),
                   ops::sum(a, {0}),
                   ops::sum(a, {1}),
                   ops::sum(wide, {1}),
                   ops::mean(at, {0}),
                   ops::amax(a, {0, 1}),
                   ops::gt(a, row),
                   ops::where(ops::gt(a, b), at, row),
                   updated};
  };
  Tensors expected;
  {
    const WithThreads scope(1);
    expected = results();
  }
  for (const int threads : {2, 5}) {
    const WithThreads scope(threads);
    const Tensors got = results();
    for (size_t i = 0; i < got.size(); ++i) {
      INFO(i << " with " << threads);
      CHECK(bit_equal(got[i], expected[i]));
    }
  }
  CHECK(expected[6].item() == Approx(ops::sum(ops::to(a, float64)).item()).epsilon(1e-5));
  CHECK(ops::sub(expected[4], ops::exp(at.contiguous_data())).to_vector<float>() ==
        std::vector<float>(static_cast<size_t>(a.numel())));
}

}  // namespace
