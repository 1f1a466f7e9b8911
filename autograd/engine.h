// The local backward engine: walks a recorded graph from results to leaves.
#pragma once
#include "autograd/run_options.h"
#include "core/tensor/tensor.h"

namespace troupe::autograd {

/// Adds the gradients of `root` with respect to all leaves that it was computed from into their `.grad`.
/// `grad`: gradient of root, same shape and dtype; may be undefined for a root of one element (then 1).
/// `invalid`, before anything has run, if the graph goes on in another actor or has a step that waits.
void backward(const Tensor& root, const Tensor& grad = {}, RunOptions options = {});
/// Of the sum over all roots. `grads`: one per root, or empty.
void backward(const Tensors& roots, const Tensors& grads, RunOptions options = {});

/// Gradients of `outputs` (weighted by `grad_outputs`) with respect to `inputs`, which may be results of
/// operators. Touches no `.grad`, and runs only the nodes between the two. Undefined where an input is not
/// reached. `invalid`, before anything has run, if a step on the way to an input waits, or if the graph goes
/// on in another actor and an input may lie behind it: Context::grad follows it there.
Tensors grad(const Tensors& outputs, const Tensors& inputs, const Tensors& grad_outputs = {},
             RunOptions options = {});

}  // namespace troupe::autograd
