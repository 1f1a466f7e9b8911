// Recorded passes beside all else that passes meet: hooks, checkpoints in methods, unused results, several
// roots, tensors that are written to in between, optimizers, and the end of the context.
#include <catch2/catch.hpp>

#include "autograd/checkpoint.h"
#include "autograd/hooks.h"
#include "autograd/ready_hooks.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;
using testing::error_of;
using testing::nothing_left;

namespace {

Tensor leaf(double v) {
  Tensor t = tensor({v}, float64);
  t.requires_grad_();
  return t;
}

// x^2 w, and what becomes of w.
struct Square : Actor {
  explicit Square(double start) : w(leaf(start)) {}
  Tensor forward(Tensor x) { return ops::mul(ops::mul(x, x), w); }
  Tensor again(Tensor x) {
    return autograd::checkpoint(
        [this](const Tensor& t) {
          ++runs;
          return ops::mul(ops::mul(t, t), w);
        },
        x);
  }
  Tensors two(Tensor x) { return {ops::mul(x, w), ops::mul(ops::mul(x, x), w)}; }
  int64_t count() { return runs; }
  Tensor gradient() { return autograd::context_gradient(w); }
  bool has_history() { return autograd::context_gradient(w).requires_grad(); }
  void write() { w.detach().fill_(100); }
  void keep_versions() { optim::set_copy_on_write(); }
  void listen() {
    hook = autograd::register_hook(w, [this](const Tensor& g) {
      ++hooks;
      return ops::mul(g, g);
    });
    watch = autograd::register_post_accumulate_grad_hook(
        w, [this](const Tensor& g) { told += g.requires_grad() ? "r" : "-"; });
  }
  std::string heard() { return std::to_string(hooks) + " " + told; }
  double value() { return w.item(); }
  Tensors parameters() override { return {w}; }
  Tensor w;
  int64_t runs = 0, hooks = 0;
  std::string told;
  autograd::HookHandle hook;
  autograd::WatchHandle watch;
  static constexpr auto remote =
      methods<&Square::forward, &Square::again, &Square::two, &Square::count, &Square::gradient,
              &Square::has_history, &Square::write, &Square::keep_versions, &Square::listen, &Square::heard,
              &Square::value>;
};

const autograd::BackwardOptions kRecord{.create_graph = true};

}  // namespace

TEST_CASE("hooks on results and leaves run recorded, and watchers hear of the recorded pass once") {
  auto cluster = Cluster::in_process(2, hosting<Square>());
  auto a = cluster->spawn<Square>("w1", 3);
  a.call<&Square::listen>().get();
  {
    autograd::Context context(*cluster);
    const Tensor x = leaf(2);
    Tensor y = a.call<&Square::forward>(x).get();
    int calls = 0;
    auto handle = autograd::register_hook(x, [&](const Tensor& g) {
      ++calls;
      return ops::mul(g, g);
    });
    context.backward(y, {}, kRecord);  // (2 x w)^2 for x, (x^2)^2 for w
    CHECK(a.call<&Square::heard>().get() == "1 r");
    CHECK(calls == 1);
    const Tensor g = autograd::take_context_gradient(x);
    CHECK(g.item() == 144);
    CHECK(a.call<&Square::gradient>().get().item() == 16);
    handle.remove();
    context.backward(g);  // 4 x^2 w^2: 8 x w^2, and for w (8 x^2 w)^2, beside 16 in the context
    CHECK(context.grad(x).item() == 8 * 2 * 9);
    CHECK(a.call<&Square::gradient>().get().item() == 16 + 96 * 96);
    CHECK(a.call<&Square::heard>().get() == "2 rr");  // of the sum, part of which has a history
    context.end().get();
  }
  nothing_left(*cluster);
}

TEST_CASE("a checkpoint in a method: the same derivatives, made again in the first pass and kept") {
  auto cluster = Cluster::in_process(2, hosting<Square>());
  auto a = cluster->spawn<Square>("w1", 3);
  {
    autograd::Context context(*cluster);
    const Tensor x = leaf(2);
    Tensor y = a.call<&Square::again>(a.call<&Square::again>(x)).get();  // w^3 x^4
    CHECK(a.call<&Square::count>().get() == 2);
    const Tensor g = context.grad({y}, {x}, {}, kRecord)[0];
    CHECK(g.item() == 4 * 8 * 27);
    CHECK(a.call<&Square::count>().get() == 4);
    context.backward(g);
    CHECK(a.call<&Square::count>().get() == 4);
    CHECK(context.grad(x).item() == 12 * 4 * 27);
    CHECK(a.call<&Square::gradient>().get().item() == 3 * 4 * 8 * 9);
    context.end().get();
  }
  nothing_left(*cluster);
}

TEST_CASE("unused results, several roots and shared parts in recorded passes") {
  auto cluster = Cluster::in_process(3, hosting<Square>());
  auto a = cluster->spawn<Square>("w1", 3), b = cluster->spawn<Square>("w2", 5);
  {
    autograd::Context context(*cluster);
    const Tensor x = leaf(2);
    const Tensors two = a.call<&Square::two>(x).get();  // 3 x, and 3 x^2, which nobody uses
    Tensor unused = b.call<&Square::forward>(two[1]).get();
    Tensor y = b.call<&Square::forward>(two[0]).get();          // 45 x^2
    Tensor z = ops::add(y, a.call<&Square::forward>(y).get());  // y + 3 y^2: y is shared
    const Tensors g =
        context.grad({z, x}, {x, y}, {Tensor(), ops::mul(x, x)}, kRecord);  // a root gradient with a history
    const auto dz = [](double at) { return 90 * at + 3 * 4 * 45 * 45 * at * at * at; };
    CHECK(g[0].item() == dz(2) + 4);
    CHECK(g[1].item() == 1 + 6 * 180);
    context.backward({g[0], g[1]}, {});  // 90 + 36 45^2 x^2 + 2 x, and 6 * 90 x
    CHECK(context.grad(x).item() == 90 + 36.0 * 45 * 45 * 4 + 4 + 6 * 180);
    context.end().get();
    unused = {};
  }
  nothing_left(*cluster);
}

TEST_CASE("a parameter that is written between the passes is named, or its old elements are kept") {
  auto cluster = Cluster::in_process(2, hosting<Square>());
  auto a = cluster->spawn<Square>("w1", 3), versions = cluster->spawn<Square>("w1", 3);
  versions.call<&Square::keep_versions>().get();
  autograd::Context context(*cluster);
  const Tensor x = leaf(2);
  const Tensor g =
      context.grad({a.call<&Square::forward>(a.call<&Square::forward>(x)).get()}, {x}, {}, kRecord)[0];
  a.call<&Square::write>().get();
  const Error e = error_of([&] { context.backward(g); });
  CHECK(e.kind() == ErrorKind::invalid);
  CHECK_THAT(e.what(), Catch::Contains("[mul]") && Catch::Contains("changed in place") &&
                           Catch::Contains("backward on w1 ("));
  CHECK_FALSE(context.grad(x).defined());

  optim::Distributed<optim::SGD> optimizer({versions}, {.lr = 0.5});
  Tensor y = versions.call<&Square::forward>(versions.call<&Square::forward>(x)).get();  // w^3 x^4
  const Tensor kept = context.grad({y}, {x}, {}, kRecord)[0];
  context.backward(y, {}, {.retain_graph = true});
  autograd::take_context_gradient(x);
  optimizer.step(context);
  CHECK(versions.call<&Square::value>().get() == 3 - 0.5 * 27 * 16);
  context.backward(kept);  // 12 x^2 w^3, with w at 3
  CHECK(context.grad(x).item() == 12 * 4 * 27);
}

TEST_CASE("optimizers and clipping take the values of sums with a history, and hold nothing of it") {
  auto cluster = Cluster::in_process(2, hosting<Square>());
  auto a = cluster->spawn<Square>("w1", 3), b = cluster->spawn<Square>("w1", 3);
  const auto steps = [&](auto& optimizer, RRef<Square> actor, bool recorded) {
    for (int i = 0; i < 3; ++i) {
      autograd::Context context(*cluster);
      context.backward(actor.call<&Square::forward>(leaf(2)).get(), {}, {.create_graph = recorded});
      CHECK(actor.call<&Square::has_history>().get() == recorded);
      optimizer.clip_grad_norm(context, 1.5);
      optimizer.step(context);
      context.end().get();
      nothing_left(*cluster);  // while the optimizer has its state
    }
    return actor.call<&Square::value>().get();
  };
  {
    optim::Distributed<optim::SGD> one({a}, {.lr = 0.1, .momentum = 0.9}),
        two({b}, {.lr = 0.1, .momentum = 0.9});
    CHECK(steps(one, a, true) == steps(two, b, false));
  }
  optim::Distributed<optim::Adam> one({a}, {.lr = 0.1}), two({b}, {.lr = 0.1});
  CHECK(steps(one, a, true) == steps(two, b, false));
}

TEST_CASE("gradients that outlive their context are values, and a pass from them is an error") {
  auto cluster = Cluster::in_process(2, hosting<Square>());
  auto a = cluster->spawn<Square>("w1", 3);
  Tensor g;
  const Tensor x = leaf(2);
  {
    autograd::Context context(*cluster);
    g = context.grad({a.call<&Square::forward>(x).get()}, {x}, {}, kRecord)[0];
    context.end().get();
  }
  CHECK(g.item() == 12);
  autograd::Context other(*cluster);
  CHECK_THAT(error_of([&] { other.backward(g); }).what(), Catch::Contains("another autograd context"));
  g = {};
  other.end().get();
  nothing_left(*cluster);
}
