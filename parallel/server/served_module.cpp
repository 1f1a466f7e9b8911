#include "parallel/server/served_module.h"

#include <algorithm>

#include "nn/make.h"

namespace troupe::parallel {
namespace {

// Puts other tensors in the place of parameters, in the order of Module::parameters().
class Bind final : public nn::Members {
 public:
  explicit Bind(const Tensors& values) : values_(values) {}
  void operator()(const std::string&, Tensor& parameter) override {
    if (parameter.defined()) parameter = values_.at(next_++);
  }
  void operator()(const std::string&, nn::Module& child) override { child.members(*this); }
  void buffer(const std::string&, Tensor&) override {}

 private:
  const Tensors& values_;
  size_t next_ = 0;
};

}  // namespace

ServedModule::ServedModule(Value spec, Served served) : net_(nn::make(spec)), client_(served) {
  const Tensors own = net_->parameters();
  const auto same = [](const Tensor& t, const std::vector<int64_t>& shape) {
    return std::ranges::equal(t.shape(), shape);
  };
  if (!std::ranges::equal(own, served.shapes, same))
    throw_invalid(
        "[server] the module has " + std::to_string(own.size()) + " parameters, and " +
        std::to_string(served.shapes.size()) +
        " are served, or their shapes differ: serve the parameters of a module of the same specification");
}

Task<Tensor> ServedModule::forward(Tensor x) {
  const auto pulled = client_.pull();
  const Tensors values = co_await pulled;
  // From here to the result nothing else runs in this actor.
  Bind bind(values);
  net_->members(bind);
  co_return (*net_)(x);
}

Task<bool> ServedModule::push(double weight) {
  const auto pushed = client_.push_context(weight);
  const Pushed result = co_await pushed;
  co_return !result.late;
}

Task<void> ServedModule::leave() {
  const auto left = client_.leave();
  co_await left;
}

}  // namespace troupe::parallel
