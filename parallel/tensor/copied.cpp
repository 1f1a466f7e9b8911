#include "parallel/tensor/copied.h"

namespace troupe::internal::parallel {

namespace {

class Entering final : public nn::Members {
 public:
  Entering(const Group& group, std::string layer) : group_(group), layer_(std::move(layer)) {}
  void operator()(const std::string& name, Tensor& parameter) override {
    if (parameter.defined()) parameter = tp::enter(parameter, group_, layer_ + "." + name);
  }
  void operator()(const std::string& name, nn::Module& child) override {
    Entering inner(group_, name.empty() ? layer_ : layer_ + "." + name);
    child.members(inner);
  }
  void buffer(const std::string&, Tensor&) override {}

 private:
  const Group& group_;
  const std::string layer_;
};

}  // namespace

void enter_all(nn::Module& module, const Group& group, const std::string& layer) {
  Entering entering(group, layer);
  module.members(entering);
}

}  // namespace troupe::internal::parallel
