// A stage of a pipeline and the actor that does its work.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/pipeline/skip_links.h"
#include "parallel/pipeline/tied_parameters.h"
#include "rref/any_ref.h"

namespace troupe::parallel {

/// A stage as its runner knows it.
struct StageActor {
  AnyRef actor;
  std::string method;
  int64_t arity = 1;
  std::string loss;      ///< method; empty: none
  bool carries = false;  ///< from one slice of the sequence to the next
  StageLinks links;
  std::vector<Tie> ties;
  std::string replicas;  ///< under which its actor has joined its replicas (replica.h); empty: it has none
};

}  // namespace troupe::parallel
