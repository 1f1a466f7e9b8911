#include "parallel/plan/read_profile_of.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/graph/enable_grad_guard.h"
#include "nn/make.h"
#include "parallel/measure/model_layers.h"
#include "parallel/plan/why_not.h"

namespace troupe::parallel {

ModelProfile read_profile_of(const Value& model, const Tensor& sample, const std::string& path) {
  ModelProfile profile = read_profile(path);
  check_is_of(profile, model, sample, path);
  return profile;
}

void check_is_of(const ModelProfile& profile, const Value& model, const Tensor& sample,
                 const std::string& name) {
  const auto other = [&](const std::string& what) {
    throw_invalid("[plan] " + name + " is of another model: " + what +
                  ": give the flags with which it was measured, or measure anew");
  };
  const ValueList layers = internal::parallel::layers_of(model);
  if (layers.size() != profile.layers.size())
    other(fmt::format("it has {} layers, and the model here {}", profile.layers.size(), layers.size()));
  const NoGradGuard no_grad;
  Tensor x =
      sample.slice(0, 0, std::min<int64_t>(sample.size(0), 2)).to(cpu);  // norms of batches need two rows
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto layer = nn::make(layers[i]);
    const double parameters = internal::parallel::bytes_of(layer->parameters());
    const LayerCost& known = profile.layers[i];
    if (known.parameters != parameters)
      other(fmt::format("layer {}, {}, has {} of parameters there, and {} here", i, known.name,
                        bytes_text(known.parameters), bytes_text(parameters)));
    const auto rows = static_cast<double>(x.size(0));
    x = (*layer)(x);
    const double output = static_cast<double>(x.nbytes()) / rows;
    if (known.output != output)
      other(fmt::format("layer {}, {}, gives {} for a row there, and {} here", i, known.name,
                        bytes_text(known.output), bytes_text(output)));
  }
}

}  // namespace troupe::parallel
