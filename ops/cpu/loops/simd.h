// Runs a loop in the widest vector instructions of the level in use.
#pragma once
#include "core/base/compiler.h"
#include "ops/cpu/loops/level.h"

namespace troupe::ops::on_cpu {

#if defined(__x86_64__)

// flatten: one call left in a loop, and it is not vectorized. (With clang it is but the first level of calls:
// it inlines by its own judgement what is below.)
template <class F>
[[TROUPE_AVX512, gnu::noinline, gnu::flatten]] void run_avx512(const F& f) {
  f();
}
template <class F>
[[TROUPE_AVX2, gnu::noinline, gnu::flatten]] void run_avx2(const F& f) {
  f();
}

template <class F>
[[gnu::noinline, gnu::flatten]] void run_baseline(const F& f) {
  f();
}

/// Calls f(), compiled for each instruction set. f must be a lambda marked [[gnu::always_inline]] that holds
/// the whole loop. The order of operations, and so the bits of a result, are the same for all (nothing is
/// fused but by name).
template <class F>
void vectorized(const F& f) {
  switch (level()) {
    case CpuLevel::amx:
    case CpuLevel::avx512:
      return run_avx512(f);
    case CpuLevel::avx2:
      return run_avx2(f);
    case CpuLevel::baseline:
      return run_baseline(f);
  }
}

#else

template <class F>
void vectorized(const F& f) {
  f();
}

#endif

}  // namespace troupe::ops::on_cpu
