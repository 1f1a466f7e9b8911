// Tests of several GPUs in every order that the simulation may do their work in.
#pragma once
#include <catch2/catch.hpp>
#include <cstdint>

#ifdef TROUPE_CUDA_SIM
#include "tests/support/sim_cuda/sim.h"
#endif

namespace troupe::testing {

/// Each schedule of the simulation; on real GPUs, once.
template <class F>
void in_schedules(uint64_t seeds, const F& f) {
#ifdef TROUPE_CUDA_SIM
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    INFO("seed " << seed);
    seed ? sim_cuda::schedule_by_seed(seed) : sim_cuda::schedule_eagerly();
    f();
    CHECK(sim_cuda::take_fault() == "");
  }
  sim_cuda::schedule_eagerly();
#else
  (void)seeds;
  f();
#endif
}

}  // namespace troupe::testing
