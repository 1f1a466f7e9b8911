// A reducer of replicas knows this beyond what that of a program does.
#pragma once
#include <memory>
#include <vector>

#include "parallel/sharded/cut_parameters.h"
#include "parallel/sharded/part_pieces.h"

namespace troupe::parallel {

class ParameterAverage;

struct ReplicaPieces {
  std::vector<std::shared_ptr<PartPieces>> parts = {};  ///< whose gradients it reduces as well
  std::shared_ptr<CutParameters> cut = {};  ///< what it divided before, among others; null: nothing
  std::shared_ptr<const ParameterAverage> average = {};  ///< null: gradients are summed in each step
  bool spares = false;                                   ///< each member updates pieces of the one before it
};

}  // namespace troupe::parallel
