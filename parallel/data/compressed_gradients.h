// Gradients that travel compressed between the members of a group, and what is left out of them.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "core/base/mutex.h"
#include "core/graph/stateful.h"
#include "parallel/server/compression/packed.h"

namespace troupe::parallel {

/// The dtype that elements travel in, where each of them does; nothing: their own.
std::optional<DType> wire_dtype(const Compression& how, DType own);

/// Bytes of a gradient as an all_reduce over a ring would have to sum them, so that members send as much.
double travelling_bytes(const Compression& how, const Shape& shape, DType dtype, size_t members);

/// What a member brings of the gradients of a bucket, as pack() has them, in bytes. `residual`: of each
/// gradient. Undefined gradients count for nothing.
Tensor pack_gradients(const Tensors& gradients, const Compression& how, Tensors& residual);
/// The sums, with the bits of all_reduce(), of what all members brought, one behind the other, for the
/// gradients of these leaves; undefined where none has one. `invalid`, naming the rank, for what
/// pack_gradients() would not make.
Tensors sum_packed(const Tensor& packed, size_t ranks, const Tensors& leaves);

/// What a member has left out of the gradients that it sent, and makes good later. It is state of the actor
/// whose reducer has it. Thread-safe.
class Residuals final : public Stateful {
 public:
  void set_parameters(const Tensors& parameters) {
    const internal::Lock lock(mutex_);
    parameters_ = parameters;
    left_.resize(parameters.size());
  }
  /// Of these parameters; nothing is left then. For passes that are under way at once, each has its own.
  Tensors take(const std::vector<size_t>& parameters);
  /// Added to what is there.
  void give(size_t parameter, const Tensor& residual);

  /// By the number of the parameter.
  StateDict state() const override;
  void load_state(const StateDict& state) override;
  std::string state_name() const override { return "GradientReducer"; }

 private:
  mutable internal::Mutex mutex_;
  Tensors parameters_ TROUPE_GUARDED_BY(mutex_), left_ TROUPE_GUARDED_BY(mutex_);
};

}  // namespace troupe::parallel
