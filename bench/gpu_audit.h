// What a training step of GPT-2 asks of a GPU: a dry run on a simulated one, at full size, in seconds. Only
// builds for simulated GPUs have it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/sim_cuda/audit.h"
#include "tests/support/sim_cuda/sim.h"

namespace troupe::bench {

struct Gpt2 {
  int64_t batch = 8, vocabulary = 50304, width = 768, layers = 12, heads = 12, context = 1024;
};

/// A step in which nothing is new any more: the third one.
struct StepAudit {
  std::vector<sim_cuda::Asked> asked;
  sim_cuda::Counters counters;
  double host_ms = 0;  ///< of the calling thread, with what the simulation takes of it

  uint64_t casts() const;  ///< launches that only change a dtype
  uint64_t bytes() const;  ///< that kernels, products, fills and copies may read and write
};
StepAudit audit_step(const Gpt2& size);

/// What a card does at best, as bench_gpu measured it there.
struct Card {
  const char* name;
  double bytes_per_s, flops_per_s;
};
inline constexpr Card kH200{"H200", 4.2e12, 680e12};

/// A table: each kind of work, how often, its bytes and flops, and the time that the card would take at best.
std::string table_of(const StepAudit& audit, const Gpt2& size, const Card& card);

}  // namespace troupe::bench
