#include "ops/cpu/gemm/packed_weights.h"

#include <type_traits>
#include <utility>

#include "core/base/call_frame.h"
#include "ops/cpu/gemm/gemm.h"
#include "ops/cpu/gemm/panels.h"

namespace troupe {
template <>
struct FrameSlotType<FrameRole::packed_weights> : std::type_identity<ops::PackedWeights> {};
}  // namespace troupe

namespace troupe::ops {

PackedWeights::PackedWeights() = default;
PackedWeights::~PackedWeights() = default;

PackedWeights::Use::Use(PackedWeights& weights) : before_(frame().packed_weights.get()) {
  if (!before_) frame().packed_weights = &weights;
}
PackedWeights::Use::~Use() { frame().packed_weights = before_; }

size_t PackedWeights::bytes() const {
  std::lock_guard lock(mutex_);
  size_t sum = 0;
  for (const auto& [key, weight] : weights_)
    for (const auto& matrix : {weight.plain, weight.transposed})
      if (matrix) sum += matrix->bytes();
  return sum;
}

void PackedWeights::clear() {
  std::map<Key, Weight> old;
  std::lock_guard lock(mutex_);
  old.swap(weights_);
}

std::shared_ptr<on_cpu::PackedMatrix> PackedWeights::find(const Tensor& b,
                                                          const on_cpu::Matrix<float>& matrix, bool linear) {
  auto* self = frame().packed_weights.get();
  if (!self || !on_cpu::has_gemm_tiles()) return nullptr;
  int64_t rows = b.shape()[0], columns = b.shape()[1];
  if (matrix.transposed) std::swap(rows, columns);
  const Key key{b.storage().get(), b.storage_offset(), rows, columns, matrix.ld};
  const uint32_t version = b.version();
  std::lock_guard lock(self->mutex_);
  auto at = self->weights_.find(key);
  if (at == self->weights_.end()) {
    if (!linear) return nullptr;
    at = self->weights_.try_emplace(key, Weight{b.storage(), version, nullptr, nullptr}).first;
  }
  Weight& weight = at->second;
  if (weight.version != version) weight = {b.storage(), version, nullptr, nullptr};
  auto& form = matrix.transposed ? weight.transposed : weight.plain;
  if (!form) form = std::make_shared<on_cpu::PackedMatrix>();
  return form;
}

}  // namespace troupe::ops
