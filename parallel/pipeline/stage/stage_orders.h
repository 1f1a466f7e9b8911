// What runners order of a stage.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor/tensor.h"
#include "core/value/value.h"

namespace troupe::parallel {

struct WorkId {
  uint64_t pipeline = 0, step = 0;
  int64_t stage = 0, micro_batch = 0;
};

struct ForwardOrder {
  WorkId id;
  std::string method;
  int64_t arity = 1;  ///< of the method
  Value input;        ///< the output of the stage before; where the method takes several, a list of them
  ValueList skips;    ///< the arguments behind it
  ValueList given;    ///< the method's last arguments: what was delivered to this stage
  int64_t gives = 0;  ///< how many skips the method gives, behind its output
  bool carries =
      false;           ///< it gives a list of tensors behind all that, and takes it last with the next slice
  int64_t slices = 1;  ///< of the same rows, whose micro-batches follow each other
  bool record = true;  ///< a backward will follow
  bool first = false;  ///< nobody wants the gradient of the input
  bool recompute = false;
  bool packs = false;  ///< weights will be read again in this step: keep them packed
  std::string loss;    ///< method that gives the loss of (output, target); empty: none
  Value target;
  std::string replicas;  ///< as in CommitOrder, and its weight
  double total = 1;
  uint64_t meeting = 0;  ///< of ranks that meet in the call; 0: none do
};

struct BackwardOrder {
  WorkId id;
  /// Of the floating tensors of the output and of the skips, in order of appearance; undefined: none.
  Tensors grads;
  double weight = 1;     ///< gradient of the loss, where the stage has one
  bool whole = false;    ///< the part of the parameters, too
  bool carries = false;  ///< as in ForwardOrder
  int64_t slices = 1;
  std::string replicas;  ///< as in CommitOrder, and its weight
  double total = 1;
  bool shares = false;
  int64_t count = 0;              ///< of the step's micro-batches
  uint64_t meeting = 0;           ///< of its pass, if it has one of its own (backward_meeting())
  std::vector<std::string> tied;  ///< parameters of which other stages have copies
};

/// Of which parameters (parameter_of()).
struct SumsOrder {
  WorkId id;
  std::vector<std::string> names;
};

struct CommitOrder {
  WorkId id;
  std::vector<std::string> names;
  Tensors sums;          ///< in place of the own ones of these parameters
  std::string replicas;  ///< that the actor sums its gradients with (StageActor::replicas)
  double weight = 1;     ///< of its own
  bool shares = false;   ///< the weights of all add up to 1, and the step has the same number in all
};

}  // namespace troupe::parallel
