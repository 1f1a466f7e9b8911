#include "autograd/ready_hooks.h"

#include <utility>

#include "autograd/leaf_watch.h"
#include "core/base/error.h"

namespace troupe::autograd {

// The table has it for each of its leaves; empty once removed.
class WatchHandle::Set final : public internal::autograd::LeafWatch {
 public:
  Set(Told f, size_t count, bool without, bool may_wait)
      : function_(std::make_shared<Told>(std::move(f))),
        count_(count),
        without_(without),
        may_wait_(may_wait) {}
  Future<void> told(size_t index, const Tensor& total, const std::shared_ptr<PassGradients>& pass) override {
    const auto function = function_;  // survives a remove() from inside
    return function && (without_ || total.defined()) ? (*function)(index, total, pass) : Future<void>();
  }
  bool may_wait() const override { return may_wait_; }
  size_t count() const override { return count_; }
  void remove() { function_.reset(); }

 private:
  std::shared_ptr<Told> function_;
  size_t count_;
  bool without_;  // call it without a gradient, too
  bool may_wait_;
};

WatchHandle& WatchHandle::operator=(WatchHandle&& o) noexcept {
  if (this == &o) return *this;
  remove();
  edges_ = std::move(o.edges_);
  set_ = std::move(o.set_);
  return *this;
}

void WatchHandle::remove() {
  if (set_) {
    for (const Edge& edge : edges_) internal::autograd::Watched::all().remove(*edge.node, set_.get());
    set_->remove();
  }
  set_.reset();
  edges_.clear();
}

WatchHandle WatchHandle::watch(const char* what, const Tensors& leaves, Told hook, bool without,
                               bool may_wait) {
  const std::string part = "[" + std::string(what) + "] ";
  if (!hook) throw_invalid(part + "the function is empty");
  if (leaves.empty()) throw_invalid(part + "the list of tensors is empty");
  WatchHandle handle;
  for (size_t i = 0; i < leaves.size(); ++i) {
    const Tensor& leaf = leaves[i];
    if (!leaf.defined()) throw_invalid(part + "tensor " + std::to_string(i) + " is undefined");
    if (!leaf.is_leaf() || !is_floating(leaf.dtype()) || (!leaf.requires_grad() && !may_wait))
      throw_invalid(part + "tensor " + std::to_string(i) + " (" + leaf.summary() +
                    ") is no leaf that needs a gradient");
    for (size_t k = 0; k < i; ++k)
      if (leaves[k].is_same(leaf))
        throw_invalid(part + "tensors " + std::to_string(k) + " and " + std::to_string(i) + " are the same");
    handle.edges_.push_back(accumulator_of(leaf));
  }
  handle.set_ = std::make_shared<WatchHandle::Set>(std::move(hook), leaves.size(), without, may_wait);
  for (size_t i = 0; i < leaves.size(); ++i) {
    Node& node = *handle.edges_[i].node;
    internal::autograd::Watched::all().add(node, handle.set_, i);
    if (!node.has_hooks()) node.add_hook(0, [](const Tensor&) { return Tensor(); });  // it counts as hooked
  }
  return handle;
}

WatchHandle register_post_accumulate_grad_hook(const Tensor& leaf, std::function<void(const Tensor&)> hook) {
  WatchHandle::Told of_one;
  if (hook)
    of_one = [hook = std::move(hook)](size_t, const Tensor& grad, const auto&) {
      hook(grad);
      return Future<void>();
    };
  return WatchHandle::watch("register_post_accumulate_grad_hook", {leaf}, std::move(of_one), false, false);
}

WatchHandle register_ready_hook(const Tensors& params, std::function<void(size_t, const Tensor&)> hook) {
  WatchHandle::Told at_once;
  if (hook)
    at_once = [hook = std::move(hook)](size_t i, const Tensor& grad, const auto&) {
      hook(i, grad);
      return Future<void>();
    };
  return WatchHandle::watch("register_ready_hook", params, std::move(at_once), true, false);
}

WatchHandle register_ready_hook(const Tensors& params, WaitingHook hook) {
  WatchHandle::Told waits;
  if (hook)
    waits = [hook = std::move(hook)](size_t i, const Tensor&, const auto& pass) { return hook(i, pass); };
  return WatchHandle::watch("register_ready_hook", params, std::move(waits), true, true);
}

}  // namespace troupe::autograd
