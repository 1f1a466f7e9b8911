// Finds the level of the machine, reads TROUPE_CPU_LEVEL, and holds oneDNN to it.
#include "ops/cpu/loops/level.h"

#include <dnnl.h>
#include <fmt/format.h>

#include <cstdlib>

#include "core/base/error.h"
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace troupe::ops::on_cpu {
namespace {

constexpr CpuLevel kAll[] = {CpuLevel::baseline, CpuLevel::avx2, CpuLevel::avx512, CpuLevel::amx};

#if defined(__x86_64__)

// The processor has the unit, and the system lets this process use it.
bool has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (kBf16 | kTile)) != (kBf16 | kTile)) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM of Linux 5.16
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

CpuLevel find_widest() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return CpuLevel::baseline;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512vl") ||
      !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512dq"))
    return CpuLevel::avx2;
  return has_amx() ? CpuLevel::amx : CpuLevel::avx512;
}

dnnl_cpu_isa_t most_for_onednn(CpuLevel level) {
  switch (level) {
    case CpuLevel::baseline:
      return dnnl_cpu_isa_sse41;
    case CpuLevel::avx2:
      return dnnl_cpu_isa_avx2;
    case CpuLevel::avx512:
      return dnnl_cpu_isa_avx512_core_bf16;
    case CpuLevel::amx:
      break;
  }
  return dnnl_cpu_isa_t{};  // all of them: oneDNN 2 and 3 have different names for it
}

void hold_onednn_to(CpuLevel level) {
  if (const dnnl_status_t s = dnnl_set_max_cpu_isa(most_for_onednn(level)); s != dnnl_success)
    throw_error(
        ErrorKind::failed,
        fmt::format("[cpu] TROUPE_CPU_LEVEL is \"{}\", which oneDNN refuses (status {}): it was used before "
                    "the first operator, or built without ONEDNN_ENABLE_MAX_CPU_ISA",
                    name(level), static_cast<int>(s)));
}

#else

CpuLevel find_widest() { return CpuLevel::baseline; }
void hold_onednn_to(CpuLevel) {}

#endif

}  // namespace

std::string_view name(CpuLevel level) {
  static constexpr std::string_view kNames[] = {"baseline", "avx2", "avx512", "amx"};
  return kNames[static_cast<size_t>(level)];
}

CpuLevel widest_level() {
  static const CpuLevel widest = find_widest();
  return widest;
}

std::string levels_up_to(CpuLevel widest) {
  std::string text;
  for (const CpuLevel l : kAll)
    if (l <= widest) text.append(text.empty() ? "" : ", ").append(name(l));
  return text;
}

CpuLevel parse_level(const char* text, CpuLevel widest) {
  if (!text || !*text) return widest;
  for (const CpuLevel l : kAll)
    if (l <= widest && name(l) == text) return l;
  throw_invalid(fmt::format("[cpu] TROUPE_CPU_LEVEL is \"{}\", expected a level of this machine: {}", text,
                            levels_up_to(widest)));
}

CpuLevel choose_level() {
  const CpuLevel chosen = parse_level(std::getenv("TROUPE_CPU_LEVEL"), widest_level());
  if (chosen != widest_level()) hold_onednn_to(chosen);
  return chosen;
}

}  // namespace troupe::ops::on_cpu
