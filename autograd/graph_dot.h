// A picture of the recorded graph.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "core/tensor/tensor.h"

namespace troupe::autograd {

/// Names for tensors in a picture: parameters, inputs.
using TensorNames = std::vector<std::pair<std::string, Tensor>>;

/// The graph that `root` was computed by, as text in Graphviz's language: operators with shapes of inputs and
/// with attributes, leaves with shape and dtype (and names, if given), and crossings to other actors. Edges
/// point the way that data went. `invalid` if root is undefined or needs no gradient. Of a graph above
/// `max_nodes` the part next to the root is drawn.
std::string graph_dot(const Tensor& root, const TensorNames& names = {}, size_t max_nodes = 2000);

/// Writes the picture: "*.dot" or "*.gv" is the text; "*.svg", "*.png" and "*.pdf" are drawn by the program
/// `dot` of Graphviz: `invalid`, saying how to install it, if it is not there. `invalid` for another ending
/// or a file that cannot be written.
void save_graph(const Tensor& root, const std::string& path, const TensorNames& names = {},
                size_t max_nodes = 2000);

}  // namespace troupe::autograd
