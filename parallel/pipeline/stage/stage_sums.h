// A stage's backward passes leave their gradients here.
#pragma once
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "autograd/add_gradient.h"
#include "autograd/sink.h"
#include "parallel/data/step_reduction.h"

namespace troupe::parallel {

/// Gradients of parameters, summed over micro-batches.
class StageSums final : public internal::autograd::Sink {
 public:
  void accumulate(const Tensor& leaf, const Tensor& grad) override {
    const auto [at, is_new] = index_.try_emplace(leaf.impl(), leaves.size());
    if (is_new) leaves.push_back(leaf), grads.emplace_back();
    internal::autograd::add_gradient(grads[at->second], grad);
  }
  // The context runs them, with the sum over all micro-batches.
  bool hooks_later(const Tensor&) override { return true; }
  Tensor sum_of(const Tensor& leaf) override { return of(leaf); }
  Tensor of(const Tensor& leaf) const {
    const auto at = index_.find(leaf.impl());
    return at == index_.end() ? Tensor() : grads[at->second];
  }
  Tensor take(const Tensor& leaf) {
    const auto at = index_.find(leaf.impl());
    return at == index_.end() ? Tensor() : std::exchange(grads[at->second], {});
  }
  void replace(const Tensor& leaf, Tensor grad) {
    const auto [at, is_new] = index_.try_emplace(leaf.impl(), leaves.size());
    if (is_new) leaves.push_back(leaf), grads.emplace_back();
    grads[at->second] = std::move(grad);
  }
  Tensors leaves, grads;

 private:
  std::unordered_map<const TensorImpl*, size_t> index_;
};

/// The last micro-batch brings the rest of the sums: those of a parameter go to the other replicas as soon as
/// nothing more comes for it.
class LastSums final : public internal::autograd::Sink {
 public:
  LastSums(StageSums& sums, StepReduction& reduction) : sums_(sums), reduction_(reduction) {}
  void accumulate(const Tensor& leaf, const Tensor& grad) override { sums_.accumulate(leaf, grad); }
  bool hooks_later(const Tensor& leaf) override { return sums_.hooks_later(leaf); }
  Tensor sum_of(const Tensor& leaf) override { return sums_.sum_of(leaf); }
  void settled(const Accumulate& node, bool) override {
    const Tensor leaf = node.leaf();
    if (reduction_.expects(leaf)) reduction_.told(leaf, sums_.take(leaf));
  }

 private:
  StageSums& sums_;
  StepReduction& reduction_;
};

/// Takes the gradients of the inputs, which are leaves, out of those that a whole pass brings.
class InputsApart final : public internal::autograd::Sink {
 public:
  InputsApart(const Tensors& inputs, internal::autograd::Sink& others)
      : grads(inputs.size()), inputs_(inputs), others_(others) {}
  void accumulate(const Tensor& leaf, const Tensor& grad) override {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (leaf.is_same(inputs_[i])) return internal::autograd::add_gradient(grads[i], grad);
    others_.accumulate(leaf, grad);
  }
  bool hooks_later(const Tensor& leaf) override {
    return std::none_of(inputs_.begin(), inputs_.end(), [&](const Tensor& in) { return leaf.is_same(in); }) &&
           others_.hooks_later(leaf);
  }
  Tensor sum_of(const Tensor& leaf) override { return others_.sum_of(leaf); }
  void settled(const Accumulate& leaf, bool came) override { others_.settled(leaf, came); }
  Tensors grads;

 private:
  const Tensors& inputs_;
  internal::autograd::Sink& others_;
};

}  // namespace troupe::parallel
