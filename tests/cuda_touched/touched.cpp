// The functions that instrumented units call for each of their loads and stores.
#include "tests/cuda_touched/touched.h"

#include <cstddef>
#include <cstring>

#include "tests/support/sim_cuda/matrix_unit.h"
#include "tests/support/sim_cuda/sim.h"

namespace troupe::testing {
namespace {

Touched now;

void loaded(const void* p, size_t bytes) {
  if (sim_cuda::is_of_device(p)) now.read += bytes;
}
void stored(const void* p, size_t bytes) {
  if (sim_cuda::is_of_device(p)) now.written += bytes;
}

}  // namespace

void reset_touched() {
  now = {};
  sim_cuda::reset_matrix_counts();
}
Touched touched() { return {now.read + sim_cuda::matrix_counts().copied_bytes, now.written}; }

}  // namespace troupe::testing

extern "C" {
using troupe::testing::loaded, troupe::testing::stored;
void __asan_load1_noabort(const void* p) { loaded(p, 1); }
void __asan_load2_noabort(const void* p) { loaded(p, 2); }
void __asan_load4_noabort(const void* p) { loaded(p, 4); }
void __asan_load8_noabort(const void* p) { loaded(p, 8); }
void __asan_load16_noabort(const void* p) { loaded(p, 16); }
void __asan_loadN_noabort(const void* p, size_t bytes) { loaded(p, bytes); }
void __asan_store1_noabort(const void* p) { stored(p, 1); }
void __asan_store2_noabort(const void* p) { stored(p, 2); }
void __asan_store4_noabort(const void* p) { stored(p, 4); }
void __asan_store8_noabort(const void* p) { stored(p, 8); }
void __asan_store16_noabort(const void* p) { stored(p, 16); }
void __asan_storeN_noabort(const void* p, size_t bytes) { stored(p, bytes); }
void __asan_handle_no_return() {}
void* __asan_memcpy(void* to, const void* from, size_t bytes) {
  loaded(from, bytes), stored(to, bytes);
  return std::memcpy(to, from, bytes);
}
void* __asan_memmove(void* to, const void* from, size_t bytes) {
  loaded(from, bytes), stored(to, bytes);
  return std::memmove(to, from, bytes);
}
void* __asan_memset(void* to, int value, size_t bytes) {
  stored(to, bytes);
  return std::memset(to, value, bytes);
}
}
