// Tensors that travel in another dtype than they are computed with: half of the bytes for a message.
#pragma once
#include "core/codec/codec.h"
#include "ops/view.h"

namespace troupe {

/// As parameter or result of a remote method: a float32 tensor (or an undefined one) that is rounded to D
/// where it leaves and is float32 again where it arrives, and so is its gradient on the way back. Calls
/// within one worker round too, so that results do not depend on where an actor lives.
///
///   OnWire<bfloat16> forward(OnWire<bfloat16> x) { return relu(linear(x, w)); }
template <DType D>
struct OnWire {
  static_assert(is_half(D), "OnWire is for bfloat16 and float16");
  OnWire() = default;
  OnWire(Tensor t) : tensor(std::move(t)) {}
  operator const Tensor&() const& { return tensor; }
  operator Tensor() && { return std::move(tensor); }
  Tensor tensor;
};

template <DType D>
struct Codec<OnWire<D>> {
  static std::string name() { return "tensor " + std::string(troupe::name(D)); }
  /// `invalid` if the tensor is not float32.
  static Value to(const OnWire<D>& x) {
    if (!x.tensor.defined()) return {};
    if (x.tensor.dtype() != float32)
      throw_invalid("[wire] to travel as " + std::string(troupe::name(D)) +
                    ", a tensor must be float32, got " + x.tensor.summary());
    return ops::to(x.tensor, D);
  }
  static OnWire<D> from(Value v) {
    Tensor t = Codec<Tensor>::from(std::move(v));
    if (t.defined() && t.dtype() != D) internal::mismatch(&name, Value(t));
    return t.defined() ? ops::to(t, float32) : t;
  }
};

}  // namespace troupe
