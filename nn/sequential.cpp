#include "nn/sequential.h"

#include "nn/activation.h"
#include "nn/linear.h"
#include "ops/matmul.h"

namespace troupe::nn {

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto* linear = dynamic_cast<const Linear*>(layers_[i].get());
    const bool fused = linear && i + 1 < layers_.size() && dynamic_cast<const ReLU*>(layers_[i + 1].get()) &&
                       !linear->observed() && !layers_[i + 1]->observed();
    if (fused)
      y = ops::linear_relu(y, linear->weight, linear->bias), ++i;
    else
      y = (*layers_[i])(y);
  }
  return y;
}

}  // namespace troupe::nn
