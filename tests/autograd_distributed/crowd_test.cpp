// Many who train against one worker at once, from three workers.
#include <catch2/catch.hpp>

#include <thread>

#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;

namespace {

struct Scale : Actor {
  explicit Scale(double start) : w(full({1}, start)) { w.requires_grad_(); }
  Tensor forward(Tensor x) { return ops::mul(x, w); }
  Tensor gradient() { return autograd::context_gradient(w); }
  Tensor w;
  static constexpr auto remote = methods<&Scale::forward, &Scale::gradient>;
};

constexpr int kCalls = 4;
constexpr float kWeight = 3;

Tensor leaf(float v) {
  Tensor t = tensor({v});
  t.requires_grad_();
  return t;
}
// Of x w^4.
bool right(const Tensor& of_x, const Tensor& of_w, float x) {
  return of_x.item() == kWeight * kWeight * kWeight * kWeight &&
         of_w.item() == kCalls * x * kWeight * kWeight * kWeight;
}

struct Trainer : Actor {
  Task<int64_t> train(RRef<Scale> scale, double number, int64_t steps) {
    int64_t good = 0;
    for (int64_t i = 0; i < steps; ++i) {
      autograd::Context context;
      const Tensor x = leaf(float(number));
      Tensor y = x;
      for (int k = 0; k < kCalls; ++k) y = co_await scale.call<&Scale::forward>(y);
      co_await context.backward_async(y);
      Tensor of_w = co_await scale.call<&Scale::gradient>();
      good += right(context.grad(x), of_w, float(number));
      co_await context.end();
    }
    co_return good;
  }
  static constexpr auto remote = methods<&Trainer::train>;
};

}  // namespace

TEST_CASE("three workers with twenty trainers each run steps of four calls against one actor") {
  auto cluster = Cluster::in_process(4, hosting<Scale, Trainer>());
  auto scale = cluster->spawn<Scale>("w1", double(kWeight));
  constexpr int kTrainers = 20, kSteps = 5;
  std::vector<Future<int64_t>> elsewhere;
  for (int i = 0; i < kTrainers; ++i)
    for (const char* on : {"w2", "w3"})
      elsewhere.push_back(
          cluster->spawn<Trainer>(on).call<&Trainer::train>(scale, double(1 + i), int64_t{kSteps}));
  std::vector<std::thread> threads;  // of this worker, where only threads can drive
  std::atomic<int64_t> good{0};
  for (int i = 0; i < kTrainers; ++i)
    threads.emplace_back([&, x_value = float(1 + i)] {
      for (int step = 0; step < kSteps; ++step) {
        autograd::Context context(*cluster);
        const Tensor x = leaf(x_value);
        Tensor y = x;
        for (int k = 0; k < kCalls; ++k) y = scale.call<&Scale::forward>(y).get();
        context.backward(y);
        good += right(context.grad(x), scale.call<&Scale::gradient>().get(), x_value);
        context.end().get();
      }
    });
  for (auto& t : threads) t.join();
  CHECK(good == kTrainers * kSteps);
  for (auto& trained : elsewhere) CHECK(trained.get() == kSteps);
  testing::nothing_left(*cluster);
}
