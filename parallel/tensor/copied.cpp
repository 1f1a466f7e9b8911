#include "parallel/tensor/copied.h"

#include "parallel/tensor/check_ranks.h"

namespace troupe::internal::parallel {

namespace {

// The parameters below a module, with their names.
class ParametersBelow final : public nn::Members {
 public:
  using All = std::vector<std::pair<std::string, Tensor*>>;
  ParametersBelow(All& all, std::string layer) : all_(all), layer_(std::move(layer)) {}
  void operator()(const std::string& name, Tensor& parameter) override {
    if (parameter.defined()) all_.emplace_back(layer_ + "." + name, &parameter);
  }
  void operator()(const std::string& name, nn::Module& child) override {
    ParametersBelow inner(all_, name.empty() ? layer_ : layer_ + "." + name);
    child.members(inner);
  }
  void buffer(const std::string&, Tensor&) override {}

 private:
  All& all_;
  const std::string layer_;
};

}  // namespace

void enter_all(nn::Module& module, const Group& group, const std::string& layer) {
  ParametersBelow::All all;
  ParametersBelow below(all, layer);
  module.members(below);
  if (tp::checks_ranks()) {  // which names the parameter that differs
    for (auto& [name, parameter] : all) *parameter = tp::enter(*parameter, group, name);
    return;
  }
  Tensors entering;
  for (const auto& [name, parameter] : all) entering.push_back(*parameter);
  entering = tp::enter(entering, group, layer);
  for (size_t i = 0; i < all.size(); ++i) *all[i].second = entering[i];
}

}  // namespace troupe::internal::parallel
