// What the environment says to operators.
#pragma once
#include <string>

namespace troupe::ops {

/// Throws what is wrong with TROUPE_NUM_THREADS, TROUPE_CPU_LEVEL or TROUPE_TILES now, and not in the first
/// operator that needs to know.
void check_environment();

/// The instructions that operators use, and those that they could use here (TROUPE_CPU_LEVEL): "avx2 of
/// baseline, avx2, avx512".
std::string cpu_levels();

}  // namespace troupe::ops
