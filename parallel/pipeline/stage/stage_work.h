// What a stage's actor does for one micro-batch: forward, and backward in one part or two.
#pragma once
#include <string>
#include <tuple>
#include <vector>

#include "actors/worker/common_method.h"
#include "parallel/pipeline/stage/stage_orders.h"

namespace troupe::parallel {

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
