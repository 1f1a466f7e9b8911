#include "ops/environment.h"

#include "ops/cpu/gemm/gemm.h"
#include "ops/dispatch/threads.h"

namespace troupe::ops {

void check_environment() {
  (void)num_threads();
  (void)on_cpu::has_gemm_tiles();
  (void)on_cpu::has_gemm_amx();
}

}  // namespace troupe::ops
