#include "parallel/measure/model_layers.h"

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/loss.h"

namespace troupe::internal::parallel {

ValueList layers_of(const Value& model) {
  const auto* map = model.get_if<ValueMap>();
  const auto at = map ? map->find("layers") : ValueMap::const_iterator();
  const auto* list = map && at != map->end() ? at->second.get_if<ValueList>() : model.get_if<ValueList>();
  ValueList layers = list ? *list : ValueList{model};
  if (layers.empty()) throw_invalid("[plan] the model has no layers");
  return layers;
}

double bytes_of(const Tensors& tensors) {
  double bytes = 0;
  for (const Tensor& t : tensors) bytes += static_cast<double>(t.nbytes());
  return bytes;
}

Tensor SomeLoss::forward(const Tensor& x) {
  const Tensor words = x.flatten(0, -2);
  return ops::cross_entropy(words, zeros({words.size(0)}, {int64, x.device()}));
}

}  // namespace troupe::internal::parallel
