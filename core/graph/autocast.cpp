#include "core/graph/autocast.h"

#include <unordered_map>
#include <utility>

#include "core/base/error.h"
#include "core/graph/saved_tensor.h"

namespace troupe {
namespace {

// A weight as it was when it was cast, and what became of it.
struct KeptCast {
  Tensor weight, cast;
  Ref<Storage> storage;
  uint32_t version = 0;
};
using KeptCasts = std::unordered_map<const TensorImpl*, KeptCast>;

struct AutocastThread {
  Autocast autocast = Autocast::off;
  KeptCasts* casts = nullptr;  // owned; null while autocast is off
};
constinit thread_local AutocastThread modes_now;

bool is_kept(const Tensor& t) {
  return t.dtype() == float32 && t.is_leaf() && t.requires_grad() && grad_enabled() && !t.impl()->base &&
         !TensorStore::current();  // a checkpoint has to see the parameters that it reads
}

}  // namespace

Autocast autocast_mode() { return modes_now.autocast; }
AutocastMode::AutocastMode(Autocast mode) : before_(modes_now.autocast) { modes_now.autocast = mode; }
AutocastMode::~AutocastMode() {
  const bool ends = modes_now.autocast != Autocast::off && before_ == Autocast::off;
  modes_now.autocast = before_;
  if (ends) delete std::exchange(modes_now.casts, nullptr);
}

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
  if (!modes_now.casts) modes_now.casts = new KeptCasts;
  KeptCast& kept = (*modes_now.casts)[t.impl()];
  if (!kept.cast.defined() || kept.cast.dtype() != half || kept.version != t.version() ||
      kept.storage.get() != t.storage().get())
    kept = {t, cast(t, half), t.storage(), t.version()};
  return kept.cast;
}

}  // namespace troupe
