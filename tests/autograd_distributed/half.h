// Half of a model, as an actor and without one: what distributed optimizers are compared with.
#pragma once
#include <vector>

#include "troupe/troupe.h"

namespace troupe::testing {

struct Half : Actor {
  Half(int64_t in, int64_t out, uint64_t seed) : random(seed), fc(in, out, random) {}
  Tensor forward(Tensor x) { return tanh(fc(x)); }
  Tensors parameters() override { return fc.parameters(); }
  /// Of the context of the call.
  Tensors gradients() {
    Tensors out;
    for (const Tensor& p : parameters()) out.push_back(autograd::context_gradient(p));
    return out;
  }
  Tensors values() {
    Tensors out;
    for (const Tensor& p : parameters()) out.push_back(p.detach().clone_data());
    return out;
  }
  void set_values(Tensors values) {
    for (size_t i = 0; i < values.size(); ++i) parameters()[i].detach().copy_(values[i]);
  }
  Generator random;
  nn::Linear fc;
  static constexpr auto remote = methods<&Half::forward, &Half::gradients, &Half::values, &Half::set_values>;
};

/// Two halves on w1 and w2 of a cluster, and the same two here.
struct TwoHalves {
  static constexpr int64_t kIn = 3, kMiddle = 5, kOut = 2;
  explicit TwoHalves(Cluster& c)
      : cluster(c),
        a(c.spawn<Half>("w1", kIn, kMiddle, uint64_t{1})),
        b(c.spawn<Half>("w2", kMiddle, kOut, uint64_t{2})) {}

  static Tensor input(int step) {
    Generator random(100 + static_cast<uint64_t>(step));
    return ops::rand({4, kIn}, random);
  }
  static Tensor loss_of(const Tensor& y) { return ops::sum(ops::square(y)); }
  /// A backward pass of both into `context`.
  void backward(autograd::Context& context, int step) {
    context.backward(loss_of(b.call<&Half::forward>(a.call<&Half::forward>(input(step))).get()));
  }
  Tensors values() {
    Tensors all = a.call<&Half::values>().get();
    for (const Tensor& t : b.call<&Half::values>().get()) all.push_back(t);
    return all;
  }

  Cluster& cluster;
  RRef<Half> a, b;
};

/// The whole in one place; gradients in `.grad`.
struct Whole {
  Half a{TwoHalves::kIn, TwoHalves::kMiddle, 1}, b{TwoHalves::kMiddle, TwoHalves::kOut, 2};
  Tensors parameters() {
    Tensors all = a.parameters();
    for (const Tensor& t : b.parameters()) all.push_back(t);
    return all;
  }
  void backward(int step) {
    for (const Tensor& p : parameters()) p.set_grad({});
    autograd::backward(TwoHalves::loss_of(b.forward(a.forward(TwoHalves::input(step)))));
  }
};

inline bool same_bits(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!bit_equal(a[i].detach(), b[i].detach())) return false;
  return true;
}

}  // namespace troupe::testing
