// What a plan is to be made for.
#pragma once
#include <cstddef>
#include <cstdint>

namespace troupe::parallel {

struct PlanOptions {
  int64_t workers = 0;     ///< 0: those of the profile
  int64_t per_host = 0;    ///< of them on a host; 0: as in the profile
  int64_t batch = 0;       ///< rows of a step; 0: the sample's
  double memory = 0;       ///< bytes that a worker may have, what it had before among them; 0: any number
  bool parts = false;      ///< the model is made of parallel::Sharded parts: Shard::all is possible
  bool stages = true;      ///< the model can be cut into stages
  bool sequences = false;  ///< its sequences can be cut over ranks of "cp", by heads
  size_t shown = 10;       ///< layouts of the table
};

}  // namespace troupe::parallel
