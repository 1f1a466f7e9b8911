// What a stage's actor does for one micro-batch: forward, and backward in one part or two.
#pragma once
#include <string>
#include <vector>

#include "actors/worker/worker.h"
#include "core/codec/codec.h"

namespace troupe::parallel {

// Methods that every actor has besides its own, so that any can be a stage. What they leave with the actor
// (the recorded steps of micro-batches, and sums of gradients) belongs to one step of one pipeline; the first
// message of another step drops it.
inline constexpr const char* kForward = "pipeline.forward";  // ForwardOrder -> {output, loss, skips}
inline constexpr const char* kBackward =
    "pipeline.backward";  // BackwardOrder -> gradients of the input, and of each skip
inline constexpr const char* kWeights = "pipeline.weights";  // WorkId
inline constexpr const char* kSums = "pipeline.sums";  // SumsOrder -> gradients, summed over micro-batches
inline constexpr const char* kCommit =
    "pipeline.commit";  // CommitOrder: the sums become gradients of the context
inline constexpr const char* kDrop = "pipeline.drop";  // WorkId

/// Part of every worker's set-up.
void install_pipeline(internal::actors::Worker& worker);

struct WorkId {
  uint64_t pipeline = 0, step = 0;
  int64_t stage = 0, micro_batch = 0;
};

struct ForwardOrder {
  WorkId id;
  std::string method;
  int64_t arity = 1;   ///< of the method
  Value input;         ///< the output of the stage before; where the method takes several, a list of them
  ValueList skips;     ///< the arguments behind it
  ValueList given;     ///< the method's last arguments: what was delivered to this stage
  int64_t gives = 0;   ///< how many skips the method gives, behind its output
  bool record = true;  ///< a backward will follow
  bool first = false;  ///< nobody wants the gradient of the input
  bool recompute = false;
  bool packs = false;  ///< weights will be read again in this step: keep them packed
  std::string loss;    ///< method that gives the loss of (output, target); empty: none
  Value target;
};

struct BackwardOrder {
  WorkId id;
  /// Of the floating tensors of the output and of the skips, in order of appearance; undefined: none.
  Tensors grads;
  double weight = 1;   ///< gradient of the loss, where the stage has one
  bool whole = false;  ///< the part of the parameters, too
};

/// Of which parameters (parameter_of()).
struct SumsOrder {
  WorkId id;
  std::vector<std::string> names;
};

struct CommitOrder {
  WorkId id;
  std::vector<std::string> names;
  Tensors sums;  ///< in place of the own ones of these parameters
};

}  // namespace troupe::parallel
