// FunctionCtx carries tensors and settings from forward() to backward().
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "core/tensor/tensor.h"

namespace troupe::autograd {

class FunctionStep;  // the recorded step

/// What forward() leaves for backward(), as PyTorch's ctx. A function that keeps more than tensors derives a
/// `Ctx` of its own from it, and adds members.
class FunctionCtx {
 public:
  FunctionCtx() = default;
  virtual ~FunctionCtx() = default;
  FunctionCtx(const FunctionCtx&) = delete;
  FunctionCtx& operator=(const FunctionCtx&) = delete;

  /// In forward(): keeps tensors, undefined ones too, for backward(); what an earlier call kept is dropped. A
  /// pass that comes after one of them was written in place is refused. Under create_graph arguments and
  /// results have their histories in backward(); other tensors count as constants there, as in PyTorch.
  void save_for_backward(Tensors tensors);
  /// In backward(): what was kept, in that order. `invalid` elsewhere.
  const Tensors& saved_tensors() const&;
  /// In forward(): these results have no gradient. Those that are not floating have none anyway.
  void mark_non_differentiable(Tensors results);
  /// In forward(): whether backward() gets zeros for results that no gradient reached (true, until told
  /// otherwise) or undefined tensors.
  void set_materialize_grads(bool on) { materialize_ = on; }
  /// Whether somebody wants the gradient of argument i of apply(). Each tensor of a list of tensors counts.
  bool needs_input_grad(size_t i) const { return i < needs_.size() && needs_[i]; }

 private:
  friend class FunctionStep;           // the recorded step
  Tensors saving_, without_gradient_;  // as forward() gave them
  std::optional<Tensors> saved_;       // in backward()
  std::vector<uint8_t> needs_;         // by argument
  bool materialize_ = true;
};

}  // namespace troupe::autograd
