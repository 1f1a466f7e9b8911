// Random numbers of a program and of its actors, told as lines of text: equal lines, equal bits.
#pragma once
#include "tests/process/programs/split_mlp.h"

namespace troupe::testing {

/// Draws in its constructor, in methods, between waits, and makes others of its kind.
struct Drawer : Actor {
  Tensors numbers() {
    const nn::Linear fresh(4, 4);
    Tensors out{layer.weight.detach(), fresh.weight.detach(), drop(ones({64})), ops::rand({8})};
    for (Tensor& t : out) t = t.clone_data();
    return out;
  }
  /// Between its two draws, `other` draws too.
  Task<Tensors> around(RRef<Drawer> other) {
    Tensors out{ops::rand({8})};
    for (const Tensor& t : co_await other.call<&Drawer::numbers>()) out.push_back(t);
    out.push_back(ops::rand({8}));
    co_return out;
  }
  RRef<Drawer> make(std::string where) { return here().spawn<Drawer>(where); }
  nn::Linear layer{4, 4};
  nn::Dropout drop;
  static constexpr auto remote = methods<&Drawer::numbers, &Drawer::around, &Drawer::make>;
};

/// Three actors of the driver, and two that actors made; wherever the workers are.
inline void draw_everywhere(Cluster& cluster, const Say& say) {
  manual_seed(7);
  const auto names = cluster.workers();
  const auto on = [&](size_t i) { return names[i % names.size()]; };
  const auto tell = [&](const char* what, const Tensors& all) {
    for (const Tensor& t : all) say(std::string(what) + " " + bits_of(t));
  };
  tell("driver", {nn::Linear(4, 4).weight.detach()});
  auto a = cluster.spawn<Drawer>(on(1)), b = cluster.spawn<Drawer>(on(2)), c = cluster.spawn<Drawer>(on(0));
  tell("a", a.call<&Drawer::numbers>().get());
  auto made = a.call<&Drawer::make>(on(2)).get(), again = a.call<&Drawer::make>(on(1)).get();
  tell("b around a", b.call<&Drawer::around>(a).get());
  tell("made", made.call<&Drawer::numbers>().get());
  tell("again around made", again.call<&Drawer::around>(made).get());
  tell("c", c.call<&Drawer::numbers>().get());
  tell("driver", {ops::rand({8})});
}

}  // namespace troupe::testing
