// Profiles and layouts that tests of plans write down.
#pragma once
#include <string>
#include <vector>

#include "parallel/plan/layout_cost.h"

namespace troupe::testing {

using namespace troupe::parallel;

inline constexpr double kMiB = 1 << 20;

// Layers that take a millisecond forward and two backward for a batch of 32, each of 4 MiB.
inline ModelProfile uniform(size_t layers, size_t workers, size_t per_host = 64) {
  ModelProfile p{.batch = 32, .cores = 64};
  for (size_t i = 0; i < layers; ++i)
    p.layers.push_back({.name = "linear",
                        .forward = {0, 1e-3 / 32},
                        .input = {0, 1e-3 / 32},
                        .weight = {0, 1e-3 / 32},
                        .backward = {0, 2e-3 / 32},
                        .parameters = 4 * kMiB,
                        .saved = 4096,
                        .output = 2048});
  for (size_t w = 0; w < workers; ++w)
    p.workers.push_back({.name = "w" + std::to_string(w), .host = "h" + std::to_string(w / per_host)});
  p.process = p.host = {.latency = 2e-6, .rate = 1e10};
  p.hosts = {.latency = 5e-5, .rate = 1.25e8};
  p.sums = {.near_round = 4e-6, .near_rate = 1e10, .far_round = 1e-4, .far_rate = 1.25e8};
  p.optimizer = 1e-10, p.state = 2;
  return p;
}
inline ModelProfile with_heads(ModelProfile p, int64_t heads) {
  p.cuts_layers = true;
  for (LayerCost& l : p.layers)
    l.name = "transformer_encoder_layer", l.heads = heads, l.sums = 2, l.time_divided = 0.9,
    l.parameters_divided = 0.99, l.saved_divided = 0.7;
  return p;
}
inline PlannedLayout layout_of(int64_t dp, int64_t pp, int64_t tp, int64_t m, std::vector<size_t> cuts = {},
                               int64_t rows = 32) {
  return {.dp = dp,
          .pp = pp,
          .tp = tp,
          .cuts = std::move(cuts),
          .rows = std::vector<int64_t>(static_cast<size_t>(dp), rows / dp),
          .micro_batches = m};
}
inline LayoutCost cost(const ModelProfile& p, const PlannedLayout& l) {
  return cost_of(p, PlannedWorkers(p, 0, 0), l);
}

}  // namespace troupe::testing
