// The method of a stage, run on what has come for one micro-batch.
#pragma once
#include <memory>

#include "parallel/pipeline/stage/stage_norms.h"
#include "parallel/pipeline/stage/stage_orders.h"

namespace troupe::parallel {

/// The floating tensors of a tree, in order of appearance.
Tensors floating_of(Value& tree);

/// The method's arguments: the output of the stage before, as one or as a list of several, then skips, then
/// what was given. `invalid`, saying what came, if it takes another number.
ValueList arguments(ForwardOrder& order);

/// Runs the method as a function of `inputs`, the floating tensors of its input and skips, that is run again
/// by the backward pass: nothing of what is in between is kept. `norms` count the first run only.
/// `unimplemented` if it waits for something.
Value run_recomputed(const ForwardOrder& order, const Tensors& inputs,
                     const std::shared_ptr<StageNorms>& norms);

/// Takes what is for the next slice, the last of a list, off what the method gave. `invalid` if it gave no
/// list, or something else last than tensors.
Tensors take_carried(const ForwardOrder& order, Value& output);

/// Takes the skips, the last of a list, off what the method gave. What is left is the output: a list, or what
/// is in it if that is one. `invalid` if it gave no list, or nothing besides.
ValueList take_skips(const ForwardOrder& order, Value& output);

}  // namespace troupe::parallel
