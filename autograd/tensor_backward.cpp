// The members of Tensor that run a backward pass.
#include "autograd/engine.h"

namespace troupe {

void Tensor::backward() const { autograd::backward(*this); }

void Tensor::backward(const Tensor& gradient, bool retain_graph, bool create_graph) const {
  autograd::backward(*this, gradient, {.retain_graph = retain_graph, .create_graph = create_graph});
}

}  // namespace troupe
