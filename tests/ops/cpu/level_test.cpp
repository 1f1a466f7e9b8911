// The level of instructions: what a variable may say, and that oneDNN keeps to it.
#include "ops/cpu/loops/level.h"

#include <dnnl.h>

#include <catch2/catch.hpp>

#include "ops/environment.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"

using namespace troupe;
using namespace troupe::ops;
using namespace troupe::ops::on_cpu;

namespace {

TEST_CASE("a level is one that the machine has, or refused with those that it has") {
  CHECK(parse_level(nullptr, CpuLevel::avx512) == CpuLevel::avx512);
  CHECK(parse_level("", CpuLevel::avx2) == CpuLevel::avx2);
  for (const CpuLevel widest : {CpuLevel::baseline, CpuLevel::avx2, CpuLevel::avx512, CpuLevel::amx})
    for (const CpuLevel l : {CpuLevel::baseline, CpuLevel::avx2, CpuLevel::avx512, CpuLevel::amx})
      if (l <= widest)
        CHECK(parse_level(std::string(name(l)).c_str(), widest) == l);
      else
        CHECK_THROWS_AS(parse_level(std::string(name(l)).c_str(), widest), Error);
  CHECK(levels_up_to(CpuLevel::baseline) == "baseline");
  CHECK(levels_up_to(CpuLevel::amx) == "baseline, avx2, avx512, amx");
  for (const char* wrong : {"AVX2", "avx", "avx2 ", "0", "widest"}) {
    const Error e = testing::error_of([&] { parse_level(wrong, CpuLevel::avx2); });
    CHECK(e.message() == "[cpu] TROUPE_CPU_LEVEL is \"" + std::string(wrong) +
                             "\", expected a level of this machine: baseline, avx2");
  }
}

TEST_CASE("oneDNN uses no instructions beyond the level in use") {
  (void)conv2d(ones({1, 1, 4, 4}), ones({1, 1, 3, 3}));
  CHECK(level() <= widest_level());
  CHECK(cpu_levels() == std::string(name(level())) + " of " + levels_up_to(widest_level()));
#if defined(__x86_64__)
  const int may = dnnl_get_effective_cpu_isa();
  if (level() < CpuLevel::avx2) CHECK((may & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_sse41);
  if (level() < CpuLevel::avx512) CHECK((may & dnnl_cpu_isa_avx512_core & ~dnnl_cpu_isa_avx2) == 0);
  if (level() < CpuLevel::amx)
    CHECK((may & dnnl_cpu_isa_avx512_core_amx & ~dnnl_cpu_isa_avx512_core_bf16) == 0);
  if (level() >= CpuLevel::avx2) CHECK((may & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2);
#endif
}

}  // namespace
