// Graphs whose parts on one worker overlap: gradients equal to a local run, and as many messages as edges.
#include <catch2/catch.hpp>

#include "actors/worker/worker.h"
#include "autograd/hooks.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::error_of;
using testing::nothing_left;

namespace {

struct Block : Actor {
  Block(double value, bool twice) : w(full({3}, value, DType::float64)) {
    w.requires_grad_();
    if (twice)
      hook = autograd::register_hook(w, [this](const Tensor& g) {
        ++hooks;
        return ops::mul(g, g);  // not linear: only right with the whole gradient
      });
  }
  Tensor forward(Tensor x) { return ops::sin(ops::mul(x, w)); }
  std::vector<Tensor> two(Tensor x) {
    Tensor h = ops::mul(x, w);
    return {h, ops::sin(h)};
  }
  Task<Tensor> residual(Tensor x, RRef<Block> next) {  // x is used here and there
    Tensor y = co_await next.call<&Block::forward>(x);
    co_return ops::add(ops::mul(x, w), y);
  }
  Tensor gradient() { return autograd::context_gradient(w); }
  int64_t times() { return hooks; }
  Tensor w;
  autograd::HookHandle hook;
  int64_t hooks = 0;
  static constexpr auto remote =
      methods<&Block::forward, &Block::two, &Block::residual, &Block::gradient, &Block::times>;
};

Tensor input() {
  Tensor x = tensor({0.5, -1, 2}, float64);
  x.requires_grad_();
  return x;
}

void close(const Tensor& got, const Tensor& want) {
  REQUIRE(got.defined());
  const auto a = got.to_vector<double>(), b = want.to_vector<double>();
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK(a[i] == Approx(b[i]).epsilon(1e-12).margin(1e-12));
}

int64_t count(Cluster& cluster, const std::string& what) {
  int64_t n = 0;
  for (const auto& name : cluster.workers()) n += cluster.metrics(name)[what];
  return n;
}

}  // namespace

TEST_CASE("a residual chain takes messages in proportion to its length") {
  constexpr int kBlocks = 20;
  auto cluster = Cluster::in_process(2, hosting<Block>());
  auto a = cluster->spawn<Block>("w1", 0.9, false);
  Tensor x = input();
  {
    autograd::Context context(*cluster);
    Tensor y = x;
    for (int i = 0; i < kBlocks; ++i) y = ops::add(y, a.call<&Block::forward>(y).get());
    context.backward(y.sum());
    CHECK(count(*cluster, "gradient_messages_sent") == 2 * kBlocks);
    CHECK(count(*cluster, "reach_messages_sent") == 2 * kBlocks);

    Tensor lx = input(), w = full({3}, 0.9, DType::float64);
    w.requires_grad_();
    Tensor ly = lx;
    for (int i = 0; i < kBlocks; ++i) ly = ops::add(ly, ops::sin(ops::mul(ly, w)));
    autograd::backward(ly.sum());
    close(context.grad(x), lx.grad());
    close(a.call<&Block::gradient>().get(), w.grad());
    context.end().get();
  }
  nothing_left(*cluster);
}

TEST_CASE("a chain needs no wave") {
  auto cluster = Cluster::in_process(3, hosting<Block>());
  auto a = cluster->spawn<Block>("w1", 0.9, false), b = cluster->spawn<Block>("w2", 1.1, false);
  autograd::Context context(*cluster);
  Tensor x = input(), w = input();
  Tensor y = x;
  for (int i = 0; i < 4; ++i)
    y = ops::mul(b.call<&Block::forward>(a.call<&Block::forward>(y).get()).get(), w);
  context.backward(y.sum());
  CHECK(count(*cluster, "reach_messages_sent") == 0);
  CHECK(count(*cluster, "gradient_messages_sent") == 16);
  CHECK(context.grad(w).defined());
}

TEST_CASE("diamonds over three workers, inside actors and at the caller") {
  auto cluster = Cluster::in_process(4, hosting<Block>());
  auto a = cluster->spawn<Block>("w1", 0.9, false), b = cluster->spawn<Block>("w2", 1.1, false),
       c = cluster->spawn<Block>("w3", 0.7, false);
  Tensor x = input();
  constexpr int kTimes = 8;
  {
    autograd::Context context(*cluster);
    Tensor y = x;
    for (int i = 0; i < kTimes; ++i) {
      Tensor h = a.call<&Block::residual>(y, b).get();
      y = ops::add(b.call<&Block::forward>(h).get(), c.call<&Block::forward>(h).get());
    }
    context.backward(y.sum());
    CHECK(count(*cluster, "gradient_messages_sent") == 8 * kTimes);
    CHECK(count(*cluster, "reach_messages_sent") == 8 * kTimes);

    Tensor lx = input(), wa = full({3}, 0.9, DType::float64), wb = full({3}, 1.1, DType::float64),
           wc = full({3}, 0.7, DType::float64);
    for (Tensor* w : {&wa, &wb, &wc}) w->requires_grad_();
    Tensor ly = lx;
    for (int i = 0; i < kTimes; ++i) {
      Tensor h = ops::add(ops::mul(ly, wa), ops::sin(ops::mul(ly, wb)));
      ly = ops::add(ops::sin(ops::mul(h, wb)), ops::sin(ops::mul(h, wc)));
    }
    autograd::backward(ly.sum());
    close(context.grad(x), lx.grad());
    close(a.call<&Block::gradient>().get(), wa.grad());
    close(b.call<&Block::gradient>().get(), wb.grad());
    close(c.call<&Block::gradient>().get(), wc.grad());
    context.end().get();
  }
  nothing_left(*cluster);
}

TEST_CASE("unused and partly used results hold an exact pass up in nothing") {
  auto cluster = Cluster::in_process(3, hosting<Block>());
  auto a = cluster->spawn<Block>("w1", 0.9, false), b = cluster->spawn<Block>("w2", 1.1, false);
  Tensor x = input();
  {
    autograd::Context context(*cluster);
    Tensor h = a.call<&Block::forward>(x).get();
    auto two = b.call<&Block::two>(h).get();
    Tensor unused = ops::mul(b.call<&Block::forward>(two[0]).get(), h);
    Tensor root = ops::add(two[1], h);  // two[0] is not used
    context.backward({root.sum(), h}, {Tensor(), full({3}, 2, DType::float64)});
    CHECK(count(*cluster, "reach_messages_sent") == 4);  // not those of the unused calls
    CHECK(count(*cluster, "gradient_messages_sent") == 4);

    Tensor lx = input(), wa = full({3}, 0.9, DType::float64), wb = full({3}, 1.1, DType::float64);
    for (Tensor* w : {&wa, &wb}) w->requires_grad_();
    Tensor lh = ops::sin(ops::mul(lx, wa));
    autograd::backward(
        {ops::add(ops::sin(ops::mul(lh, wb)), ops::mul(lh, full({3}, 3, DType::float64))).sum()}, {});
    close(context.grad(x), lx.grad());
    close(a.call<&Block::gradient>().get(), wa.grad());
    close(b.call<&Block::gradient>().get(), wb.grad());
    context.end().get();
  }
  nothing_left(*cluster);
}

TEST_CASE("two passes in one context add up, one after the other and at once") {
  auto cluster = Cluster::in_process(2, hosting<Block>());
  auto a = cluster->spawn<Block>("w1", 0.9, false);
  Tensor x = input();
  autograd::Context context(*cluster);
  Tensor y = x;
  for (int i = 0; i < 5; ++i) y = ops::add(y, a.call<&Block::forward>(y).get());
  Tensor loss = y.sum();
  context.backward(loss, {}, {.retain_graph = true});
  const Tensor once = context.grad(x), wonce = a.call<&Block::gradient>().get();
  const auto values = once.to_vector<double>();
  context.backward(loss, {}, {.retain_graph = true});
  CHECK(once.to_vector<double>() == values);  // what was handed out stays as it was
  auto third = context.backward_async({loss}, {}, {.retain_graph = true}),
       fourth = context.backward_async({loss}, {}, {.retain_graph = true});
  third.get(), fourth.get();
  close(context.grad(x), ops::add(ops::add(once, once), ops::add(once, once)));
  close(a.call<&Block::gradient>().get(), ops::add(ops::add(wonce, wonce), ops::add(wonce, wonce)));
}

TEST_CASE("a hook on a leaf sees the whole gradient of a pass, however many messages bring it") {
  auto cluster = Cluster::in_process(2, hosting<Block>());
  auto a = cluster->spawn<Block>("w1", 0.5, true);
  autograd::Context context(*cluster);
  Tensor x = ones({3}, DType::float64);
  Tensor y = ops::add(a.call<&Block::forward>(x).get(), a.call<&Block::forward>(x).get());
  context.backward(y.sum());
  const double g = 2 * std::cos(0.5);
  close(a.call<&Block::gradient>().get(), full({3}, g * g, DType::float64));
  CHECK(a.call<&Block::times>().get() == 1);
}
