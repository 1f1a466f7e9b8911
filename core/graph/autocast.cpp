#include "core/graph/autocast.h"

#include <unordered_map>

#include "core/base/error.h"
#include "core/graph/saved_tensor.h"

namespace troupe {
// Weights as they were when they were cast, and what became of them.
struct internal::KeptCasts {
  struct Cast {
    Tensor weight, cast;
    Ref<Storage> storage;
    uint32_t version = 0;
  };
  std::unordered_map<const TensorImpl*, Cast> of;
};

void internal::forget(KeptCasts* casts) { delete casts; }

namespace {

bool is_kept(const Tensor& t) {
  return t.dtype() == float32 && t.is_leaf() && t.requires_grad() && grad_enabled() && !t.impl()->base &&
         !TensorStore::current();  // a checkpoint has to see the parameters that it reads
}

}  // namespace

static Autocast mode_of(DType half) {
  if (half == bfloat16) return Autocast::bfloat16;
  if (half == float16) return Autocast::float16;
  throw_invalid("[autocast] computes in bfloat16 or float16, got " + std::string(name(half)) +
                "; for float32 leave it out, or say NoAutocastGuard");
}

AutocastGuard::AutocastGuard(DType half) : AutocastMode(mode_of(half)) {}

Tensor kept_cast(const Tensor& t, Tensor (*cast)(const Tensor&, DType)) {
  const DType half = dtype_of_mode(autocast_mode());
  if (!is_kept(t)) return cast(t, half);
  internal::KeptCasts*& all = internal::kept_casts();
  if (!all) all = new internal::KeptCasts;
  internal::KeptCasts::Cast& kept = all->of[t.impl()];
  if (!kept.cast.defined() || kept.cast.dtype() != half || kept.version != t.version() ||
      kept.storage.get() != t.storage().get())
    kept = {t, cast(t, half), t.storage(), t.version()};
  return kept.cast;
}

}  // namespace troupe
