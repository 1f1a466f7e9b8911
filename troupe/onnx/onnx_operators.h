// Operators in the words of ONNX.
#pragma once
#include "ops/dispatch/op.h"
#include "troupe/onnx/onnx_graph.h"

namespace troupe::internal::onnx {

/// Adds what an operator did to the graph. `invalid`, by name, for one that has no form there.
void add_operator(OnnxGraph& graph, const ops::Call& call, const Tensors& out);

}  // namespace troupe::internal::onnx
