// Ways to divide the state of replicas that are made of parts.
#pragma once
#include <cmath>
#include <vector>

#include "parallel/sharded/shard.h"
#include "troupe/troupe.h"

namespace troupe::testing {

inline Tensor wave(const Shape& shape, double start, DType dtype = float32) {
  std::vector<double> v;
  for (int64_t i = 0; i < shape.numel(); ++i) v.push_back(0.5 * std::sin(start + 0.7 * double(i)));
  return tensor(v, dtype).reshape(shape);
}

struct Way {
  parallel::Shard shard;
  parallel::Per gather = parallel::Per::use, reduce = parallel::Per::use;
};
inline const std::vector<Way> kWays{{parallel::Shard::none},
                                    {parallel::Shard::gradients},
                                    {parallel::Shard::all},
                                    {parallel::Shard::all, parallel::Per::step, parallel::Per::use},
                                    {parallel::Shard::all, parallel::Per::use, parallel::Per::step},
                                    {parallel::Shard::all, parallel::Per::step, parallel::Per::step}};

}  // namespace troupe::testing
