#include "autograd/once_differentiable.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace troupe::autograd {
namespace {

class OnceDifferentiable final : public Node {
 public:
  OnceDifferentiable(std::string function, size_t results) : function_(std::move(function)) {
    num_inputs_ = static_cast<uint32_t>(results);
  }
  void check_saved() const override {
    throw_invalid(fmt::format("[{}] its gradient cannot be differentiated again: it is once_differentiable",
                              function_));
  }
  Tensors apply(Tensors&&) override {
    check_saved();
    return {};
  }
  std::string name() const override { return function_ + ", once differentiable"; }

 private:
  const std::string function_;
};

}  // namespace

void end_at(const std::string& function, Edges leads, Tensors& grads) {
  const auto end = make_ref<OnceDifferentiable>(function, grads.size());
  end->set_next(std::move(leads));
  for (size_t i = 0; i < grads.size(); ++i)
    if (grads[i].defined()) {
      grads[i] = grads[i].detach();
      grads[i].set_grad_fn({end, static_cast<uint32_t>(i)});
    }
}

}  // namespace troupe::autograd
