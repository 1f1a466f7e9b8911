// A pause of a thread that polls memory until somebody writes there.
#pragma once
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace troupe::internal::net {

inline void spin_pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace troupe::internal::net
