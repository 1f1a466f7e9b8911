#include "ops/environment.h"

#include <fmt/format.h>

#include "ops/cpu/gemm/gemm.h"
#include "ops/cpu/loops/level.h"
#include "ops/dispatch/threads.h"

namespace troupe::ops {

void check_environment() {
  (void)num_threads();
  (void)on_cpu::level();
  (void)on_cpu::may_use_tiles();
}

std::string cpu_levels() {
  return fmt::format("{} of {}", on_cpu::name(on_cpu::level()), on_cpu::levels_up_to(on_cpu::widest_level()));
}

}  // namespace troupe::ops
