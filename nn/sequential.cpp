#include "nn/sequential.h"

#include "core/base/error.h"
#include "nn/activation.h"
#include "nn/linear.h"
#include "nn/module_list.h"
#include "ops/matmul.h"

namespace troupe::nn {

Sequential& Sequential::add(std::shared_ptr<Layer> layer) {
  if (!layer) throw_invalid("[nn] add() needs a layer, got a pointer to none");
  DrawOrder::keep(*layer);
  layers_.push_back(std::move(layer));
  return *this;
}

std::shared_ptr<Module> Sequential::held_child(const std::string& name) {
  const size_t i = place_of(name);
  return i < layers_.size() ? layers_[i] : nullptr;
}

void Sequential::hold_child(const std::string& name, const std::shared_ptr<Module>& module) {
  layers_.at(place_of(name)) = as_layer(module);
}

Sequential Sequential::slice(size_t begin, size_t end) const {
  if (begin > end || end > size())
    throw_invalid("[nn] slice(" + std::to_string(begin) + ", " + std::to_string(end) + ") of " +
                  std::to_string(size()) + " layers");
  Sequential out;
  out.layers_.assign(layers_.begin() + static_cast<std::ptrdiff_t>(begin),
                     layers_.begin() + static_cast<std::ptrdiff_t>(end));
  return out;
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto* linear = dynamic_cast<const Linear*>(layers_[i].get());
    const Layer* next = i + 1 < layers_.size() ? layers_[i + 1].get() : nullptr;
    const bool apart = !linear || !next || linear->observed() || next->observed();
    if (!apart && dynamic_cast<const ReLU*>(next))
      y = ops::linear_relu(y, linear->weight, linear->bias), ++i;
    else if (const auto* gelu = dynamic_cast<const GELU*>(next); !apart && gelu && gelu->exact())
      y = ops::linear_gelu(y, linear->weight, linear->bias), ++i;
    else
      y = (*layers_[i])(y);
  }
  return y;
}

}  // namespace troupe::nn
