// Which instructions the kernels of the CPU use: one level for our own and for oneDNN's.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::ops::on_cpu {

/// Sets of instructions; each has those before it. baseline: what every processor of this kind has (x86-64:
/// SSE2, and SSE4.1 for oneDNN). avx2: FMA as well. avx512: F, VL, BW and DQ. amx: the matrix unit, if the
/// system lets this process use it (Linux 5.16 or later).
enum class CpuLevel : uint8_t { baseline, avx2, avx512, amx };

/// "avx2".
std::string_view name(CpuLevel level);
/// The widest level of this machine.
CpuLevel widest_level();
/// The levels up to `widest`, as text: "baseline, avx2".
std::string levels_up_to(CpuLevel widest);
/// The level that `text` names, `widest` if it is null or empty; `invalid` if it names none of those up to
/// `widest`.
CpuLevel parse_level(const char* text, CpuLevel widest);

/// The level of the first call of level(): the widest, or what TROUPE_CPU_LEVEL says. oneDNN keeps to it
/// from then on. `invalid` as parse_level().
CpuLevel choose_level();
/// The level in use. Call it before the first use of oneDNN.
inline CpuLevel level() {
  static const CpuLevel chosen = choose_level();
  return chosen;
}

}  // namespace troupe::ops::on_cpu
