#include "parallel/plan/read_profile_of.h"

#include <fmt/format.h>

#include "core/graph/enable_grad_guard.h"
#include "nn/make.h"
#include "nn/sequential.h"
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
  const auto made = nn::make(model);
  auto* const several = dynamic_cast<nn::Sequential*>(made.get());
  const size_t count = several ? several->size() : 1;
  if (count != profile.layers.size())
    other(fmt::format("it has {} layers, and the model here {}", profile.layers.size(), count));
  const NoGradGuard no_grad;
  Tensor x = sample.to(cpu);
  for (size_t i = 0; i < count; ++i) {
    nn::Layer& layer = several ? (*several)[i] : *made;
    x = layer(x);
    double parameters = 0;
    for (const Tensor& p : layer.parameters()) parameters += static_cast<double>(p.nbytes());
    const double output = static_cast<double>(x.nbytes()) / static_cast<double>(sample.size(0));
    const LayerCost& known = profile.layers[i];
    if (known.parameters != parameters)
      other(fmt::format("layer {}, {}, has {} of parameters there, and {} here", i, known.name,
                        bytes_text(known.parameters), bytes_text(parameters)));
    if (known.output != output)
      other(fmt::format("layer {}, {}, gives {} for a row there, and {} here", i, known.name,
                        bytes_text(known.output), bytes_text(output)));
  }
}

}  // namespace troupe::parallel
