// The members of Tensor that are about its place in the recorded graph.
#include <mutex>
#include <utility>

#include "core/base/error.h"
#include "core/graph/construction_scope.h"
#include "core/graph/kept_hooks.h"
#include "core/graph/leaf_uses.h"
#include "core/graph/node.h"
#include "core/graph/view_history.h"
#include "core/tensor/creation.h"
#include "core/tensor/tensor.h"

namespace troupe {
namespace {

bool needs_gradient(const TensorImpl& t) {
  return (t.base && needs_gradient(*t.base)) || t.grad_fn || (t.autograd && t.autograd->requires_grad);
}

AutogradMeta& meta_of(TensorImpl& impl) {
  if (!impl.autograd) impl.autograd = std::make_unique<AutogradMeta>();
  return *impl.autograd;
}

}  // namespace

TensorImpl::TensorImpl(Ref<Storage> storage, const Shape& shape, const Shape& strides, int64_t offset,
                       DType dtype, bool contiguous)
    : storage(std::move(storage)),
      shape(shape),
      strides(strides),
      offset(offset),
      dtype(dtype),
      contiguous(contiguous) {}
TensorImpl::~TensorImpl() {
  if (autograd) drop_kept_hooks(*this);
}

// ---- autograd

bool Tensor::requires_grad() const { return needs_gradient(made("requires_grad")); }

Tensor Tensor::requires_grad_(bool on) && { return std::move(requires_grad_(on)); }
Tensor& Tensor::requires_grad_(bool on) & {
  if (on && !is_floating(dtype())) throw_invalid("[requires_grad] needs a floating dtype, got " + summary());
  if (!is_leaf())
    throw_invalid("[requires_grad] is for leaves; this tensor was made by " + grad_fn().node->name());
  if (!on && impl_->base && needs_gradient(*impl_->base))
    throw_invalid("[requires_grad] this view follows its base, which requires a gradient; detach() it");
  if (on || impl_->autograd) meta_of(*impl_).requires_grad = on;
  if (on) ConstructionScope::note_leaf(*this);
  return *this;
}

bool Tensor::is_leaf() const {
  TensorImpl& t = made("is_leaf");
  if (t.base) refresh_view_history(t);
  return !t.grad_fn;
}

Edge Tensor::grad_fn() const {
  TensorImpl& t = made("grad_fn");
  if (t.base) refresh_view_history(t);
  return t.grad_fn;
}

void Tensor::set_grad_fn(Edge edge) const {
  TensorImpl& t = made("set_grad_fn");
  t.grad_fn = std::move(edge);
  if (t.base) t.history_version.store(t.storage->version(), std::memory_order_release);
}

void Tensor::set_view_of(const Tensor& source, ViewOrigin origin) const {
  TensorImpl& t = made("set_view_of");
  const TensorImpl& s = source.made("set_view_of");
  t.base = s.base ? s.base : source.impl_;
  t.origin = s.base && origin == ViewOrigin::plain ? s.origin : origin;
  t.history_version.store(t.storage->version(), std::memory_order_relaxed);
}

Edge Tensor::gradient_edge() const {
  TensorImpl& t = made("gradient_edge");
  if (t.base) refresh_view_history(t);
  if (t.grad_fn) return t.grad_fn;
  if (!needs_gradient(t)) return {};
  LeafUses::note(*this);
  return accumulator_of(*this);
}

Edge accumulator_of(const Tensor& leaf) {
  TensorImpl& t = *leaf.impl();
  AutogradMeta& meta = meta_of(t);
  std::lock_guard lock(meta.mutex);
  if (meta.accumulator && meta.accumulator->try_retain()) return {Ref<Node>::adopt(meta.accumulator), 0};
  auto accumulator = make_ref<Accumulate>(Ref<TensorImpl>(&t));
  add_kept_hooks(t, *accumulator);
  meta.accumulator = accumulator.get();
  return {std::move(accumulator), 0};
}

Tensor leaf_without_elements(const Shape& shape, const TensorOptions& options) {
  Shape strides = shape;
  for (int k = 0; k < strides.rank(); ++k) strides[k] = 0;
  return zeros({}, options).alias(shape, strides, 0).requires_grad_();
}

Tensor Tensor::grad() const {
  const TensorImpl& t = made("grad");
  return t.autograd ? t.autograd->grad : Tensor();
}
void Tensor::set_grad(Tensor g) const { meta_of(made("set_grad")).grad = std::move(g); }

}  // namespace troupe
