// Hooks live in nodes, which cannot drop them; removing one empties it.
#include "autograd/hooks.h"

#include "core/base/error.h"
#include "core/base/generator.h"
#include "core/graph/grad_mode_note.h"
#include "core/graph/kept_hooks.h"

namespace troupe::autograd {

HookHandle& HookHandle::operator=(HookHandle&& o) noexcept {
  if (this == &o) return *this;
  remove();
  edge_ = std::move(o.edge_);
  hook_ = std::move(o.hook_);
  return *this;
}

namespace {

Node::Hook calling(std::shared_ptr<std::shared_ptr<HookHandle::Function>> shared) {
  return [shared = std::move(shared)](const Tensor& grad) -> Tensor {
    const auto function = *shared;  // survives a remove() from inside
    if (!function) return {};
    Tensor replaced = (*function)(grad);
    if (replaced.defined() && (replaced.shape() != grad.shape() || replaced.dtype() != grad.dtype()))
      throw_invalid("[register_hook] a hook got the gradient " + grad.summary() + " and returned " +
                    replaced.summary());
    return replaced;
  };
}

}  // namespace

void HookHandle::remove() {
  if (hook_) hook_->reset();
  hook_.reset();
  edge_ = {};
}

void HookHandle::keep() {
  if (hook_ && edge_.node->end() == Node::End::leaf)  // whose accumulator is there while a graph reaches it
    keep_hook(static_cast<const Accumulate&>(*edge_.node).leaf(), calling(hook_));
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
  if (const char* why = handle.edge_.node->partial())
    throw_invalid("[register_hook] the tensor (" + tensor.summary() + ") " + why);
  if (!hook) throw_invalid("[register_hook] the function is empty");
  if (const GeneratorWatch* watch = GeneratorWatch::current(); watch && watch->repeats())
    return {};  // a checkpoint runs its function again: the hook is there
  auto shared = std::make_shared<HookHandle::Shared>(std::make_shared<HookHandle::Function>(std::move(hook)));
  handle.edge_.node->add_hook(handle.edge_.input, calling(shared));
  handle.hook_ = std::move(shared);
  return handle;
}

}  // namespace troupe::autograd
