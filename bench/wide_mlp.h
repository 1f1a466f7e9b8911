// The perceptron of the data-parallel, sharded and tensor-parallel steps: its shape, its first values and its
// batch are those of the peer (bench/torch_mlp.py), so that the losses of both are the same.
#pragma once
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "bench/measure.h"
#include "troupe/troupe.h"

namespace troupe::bench {

constexpr int64_t kBatch = 512, kIn = 1024, kHidden = 2048, kOut = 1024;

/// The number i of a sequence, of 32 bits: as the peer mixes them.
inline uint32_t mixed(uint32_t sequence, uint32_t i) {
  uint32_t x = sequence << 23 | i;
  x = (x ^ x >> 16) * 0x7feb352dU;
  x = (x ^ x >> 15) * 0x846ca68bU;
  return x ^ x >> 16;
}

/// Uniform in +-bound.
inline Tensor uniform(uint32_t sequence, const std::vector<int64_t>& sizes, double bound) {
  int64_t count = 1;
  for (const int64_t n : sizes) count *= n;
  std::vector<float> values(static_cast<size_t>(count));
  for (uint32_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>((mixed(sequence, i) / 2147483648.0 - 1) * bound);
  return tensor(values).reshape(sizes);
}

/// Gives layer number `layer`, from 0, its first values.
inline void start(nn::Linear& linear, uint32_t layer) {
  const double bound = 1 / std::sqrt(static_cast<double>(linear.weight.size(1)));
  const NoGradGuard off;
  linear.weight.copy_(uniform(2 * layer, {linear.weight.size(0), linear.weight.size(1)}, bound));
  linear.bias.copy_(uniform(2 * layer + 1, {linear.bias.size(0)}, bound));
}

struct Batch {
  Tensor x = uniform(6, {kBatch, kIn}, 1.5);
  Tensor y = classes();

 private:
  static Tensor classes() {
    std::vector<int64_t> all;
    for (uint32_t i = 0; i < kBatch; ++i) all.push_back(mixed(7, i) % kOut);
    return tensor(all);
  }
};

/// Takes steps, which give their loss: the first five count as a warm-up, and their losses are kept.
struct TimedSteps {
  TimedSteps(const Bench& bench, const std::function<Tensor()>& step, int iterations) {
    for (int i = 0; i < 5; ++i) losses.push_back(step().item());
    us = bench.median_us(step, iterations, 0);
  }
  std::vector<double> losses;
  double us;
};

}  // namespace troupe::bench
