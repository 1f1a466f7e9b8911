// What a stage's actor does for one micro-batch: forward, and backward in one part or two.
#pragma once
#include <string>
#include <tuple>
#include <vector>

#include "actors/worker/common_method.h"

namespace troupe::parallel {

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
  std::string replicas;  ///< as in CommitOrder, and its weight
  double total = 1;
  uint64_t meeting = 0;  ///< of its pass, if it has one of its own (BackwardOptions)
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
};

// Methods that every actor has besides its own, so that any can be a stage. What they leave with the actor
// (the recorded steps of micro-batches, and sums of gradients) belongs to one step of one pipeline; the first
// message of another step drops it.

/// What a stage gives: its output, or nothing where it has the loss; that; the skips behind the output.
using ForwardResult = std::tuple<Value, Tensor, ValueList>;
/// Runner to stage: a micro-batch has arrived.
inline constexpr internal::actors::CommonMethod<ForwardResult(ForwardOrder order)> kForward{
    "pipeline.forward"};
/// Runner to stage: the gradients of a micro-batch have arrived. Those of its input, and of each skip.
inline constexpr internal::actors::CommonMethod<std::vector<Tensors>(BackwardOrder order)> kBackward{
    "pipeline.backward"};
/// Runner to stage: it is time for the second part of a backward.
inline constexpr internal::actors::CommonMethod<void(WorkId id)> kWeights{"pipeline.weights"};
/// Runner to stage: the step is done, and others have copies of its parameters. Gradients of these, summed
/// over micro-batches.
inline constexpr internal::actors::CommonMethod<Tensors(SumsOrder order)> kSums{"pipeline.sums"};
/// Runner to stage: the step is done; the sums become gradients of the context.
inline constexpr internal::actors::CommonMethod<void(CommitOrder order)> kCommit{"pipeline.commit"};
/// Runner to stage: the step has failed, and what it left goes.
inline constexpr internal::actors::CommonMethod<void(WorkId id)> kDrop{"pipeline.drop"};

/// Part of every worker's set-up.
void install_pipeline(internal::actors::Worker& worker);

}  // namespace troupe::parallel
