// An operator's sample on any device, with its first and second gradients.
#pragma once
#include "autograd/engine.h"
#include "ops/ops.h"

namespace troupe::testing {

struct Passes {
  Tensors outputs, grads, seconds;
};

/// The gradients of the leaves, recorded, of the outputs times random weights; empty if nothing has any.
inline Tensors recorded_gradients(const Tensors& outputs, const Tensors& leaves, uint64_t seed) {
  Tensors roots, weights;
  for (size_t i = 0; i < outputs.size(); ++i)
    if (const Tensor& t = outputs[i]; t.defined() && t.requires_grad()) {
      Generator g(seed + i);
      roots.push_back(t);
      weights.push_back(ops::to(ops::rand(t.shape(), g, float64), t.dtype()).data_on(t.device()));
    }
  if (roots.empty() || leaves.empty()) return {};
  return autograd::grad(roots, leaves, weights, {.create_graph = true});
}

/// `seen`: what is done to each input first.
template <class F>
Passes run_passes(const ops::Op& op, const ops::Sample& s, Device device, F&& seen) {
  Tensors in, wanted;
  for (const Tensor& t : s.inputs) {
    in.push_back(seen(t).data_on(device).detach());
    if (is_floating(t.dtype())) {
      in.back().requires_grad_();
      wanted.push_back(in.back());
    }
  }
  Passes p;
  p.outputs = ops::apply(op, in, s.attrs);
  p.grads = recorded_gradients(p.outputs, wanted, 1);
  p.seconds = recorded_gradients(p.grads, wanted, 100);
  return p;
}

}  // namespace troupe::testing
