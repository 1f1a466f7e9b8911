// Hooks live in nodes, which cannot drop them; removing one empties it.
#include "autograd/hooks.h"

#include "core/base/error.h"
#include "core/graph/grad_mode_note.h"

namespace troupe::autograd {

HookHandle& HookHandle::operator=(HookHandle&& o) noexcept {
  if (this == &o) return *this;
  remove();
  edge_ = std::move(o.edge_);
  hook_ = std::move(o.hook_);
  return *this;
}

void HookHandle::remove() {
  if (hook_) hook_->reset();
  keep();
}

void HookHandle::keep() {
  hook_.reset();
  edge_ = {};
}

HookHandle register_hook(const Tensor& tensor, HookHandle::Function hook) {
  if (!tensor.defined()) throw_invalid("[register_hook] the tensor is undefined");
  HookHandle handle;
  handle.edge_ = tensor.gradient_edge();
  if (!handle.edge_)
    throw_invalid("[register_hook] the tensor (" + tensor.summary() +
                  ") needs no gradient: " + why_no_history());
  if (!hook) throw_invalid("[register_hook] the function is empty");
  auto shared = std::make_shared<HookHandle::Shared>(std::make_shared<HookHandle::Function>(std::move(hook)));
  handle.edge_.node->add_hook(handle.edge_.input, [shared](const Tensor& grad) -> Tensor {
    const auto function = *shared;  // survives a remove() from inside
    if (!function) return {};
    Tensor replaced = (*function)(grad);
    if (replaced.defined() && (replaced.shape() != grad.shape() || replaced.dtype() != grad.dtype()))
      throw_invalid("[register_hook] a hook got the gradient " + grad.summary() + " and returned " +
                    replaced.summary());
    return replaced;
  });
  handle.hook_ = std::move(shared);
  return handle;
}

}  // namespace troupe::autograd
