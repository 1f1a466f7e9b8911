#include "core/graph/view_history.h"

#include <mutex>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/graph/node.h"
#include "core/graph/saved_tensor.h"
#include "core/tensor/creation.h"
#include "core/tensor/elements.h"

namespace troupe {
namespace {

// The elements of a view among those of its base, whatever geometry the base has.
struct Region {
  Shape base_shape, base_strides;
  bool base_contiguous;
  Shape shape, strides;
  int64_t offset;  // from the base's first element

  Region(const TensorImpl& base, const TensorImpl& view)
      : base_shape(base.shape),
        base_strides(base.strides),
        base_contiguous(base.contiguous),
        shape(view.shape),
        strides(view.strides),
        offset(view.offset - base.offset) {}

  // Zeros that lie in memory as the base does.
  Tensor zeros_of_base(DType dtype, Device device) const {
    if (base_contiguous) return zeros(base_shape, {dtype, device});
    int64_t last = 0;
    for (int i = 0; i < base_shape.rank(); ++i) last += (base_shape[i] - 1) * base_strides[i];
    return zeros({base_shape.numel() ? last + 1 : 0}, {dtype, device}).alias(base_shape, base_strides, 0);
  }
  // A copy of g, of the base's shape, that lies in memory as the base does.
  Tensor laid_out(const Tensor& g) const {
    if (base_contiguous) return g.clone_data();
    const Tensor out = zeros_of_base(g.dtype(), g.device());
    copy_elements(out, g);
    return out;
  }
  Tensor of(const Tensor& laid_out) const { return laid_out.alias(shape, strides, offset); }

  // The three are linear; each is recorded by the node of its adjoint.
  Tensor read(const Tensor& g) const;     // the elements of g in the region
  Tensor scatter(const Tensor& g) const;  // zeros with g, of the region's shape, added in the region
  Tensor without(const Tensor& g) const;  // g with zeros in the region
};

using Function = Tensor (Region::*)(const Tensor&) const;

class RegionStep final : public Node {
 public:
  RegionStep(const char* name, const Region& region, Function gradient)
      : name_(name), region_(region), gradient_(gradient) {}
  Tensors apply(Tensors&& grads) override { return {(region_.*gradient_)(grads[0])}; }
  std::string name() const override { return name_; }

 private:
  const char* name_;
  const Region region_;
  const Function gradient_;
};

Tensor recorded(const Tensor& out, const Tensor& in, const char* name, const Region& region,
                Function gradient) {
  if (!grad_enabled() || !in.requires_grad()) return out;
  auto step = make_ref<RegionStep>(name, region, gradient);
  step->set_next({in.gradient_edge()});
  out.set_grad_fn({std::move(step), 0});
  return out;
}

Tensor Region::read(const Tensor& g) const {
  const Tensor at = base_contiguous && g.is_contiguous()
                        ? g.alias(shape, strides, g.storage_offset() + offset)
                        : of(laid_out(g));
  return recorded(at, g, "AsStrided", *this, &Region::scatter);
}

Tensor Region::scatter(const Tensor& g) const {
  const Tensor out = zeros_of_base(g.dtype(), g.device()), region = of(out);
  add_elements(region, region, g);  // an expanded view has an element of the base several times
  return recorded(out, g, "AsStridedGrad", *this, &Region::read);
}

Tensor Region::without(const Tensor& g) const {
  const Tensor out = laid_out(g);
  fill_elements(of(out), 0);
  return recorded(out, g, "CopySlicesGrad", *this, &Region::without);
}

// The base after a write to a view: its gradient goes to the base before but in the region, and there to what
// was written.
class CopySlices final : public Node {
 public:
  explicit CopySlices(const Region& region) : region_(region) {}
  Tensors apply(Tensors&& grads) override {
    return {next()[0] ? region_.without(grads[0]) : Tensor(), next()[1] ? region_.read(grads[0]) : Tensor()};
  }
  std::string name() const override { return "CopySlices"; }

 private:
  const Region region_;
};

// A tensor all of whose elements were written: its gradient goes there, and zeros to the tensor before.
class Overwritten final : public Node {
 public:
  Tensors apply(Tensors&& grads) override { return {next()[0] ? zeros_like(grads[0]) : Tensor(), grads[0]}; }
  std::string name() const override { return "Overwritten"; }
};

// The steps since the last history of `base` that `made` leads to let go of it. Older ones are not looked
// for: this is done at each of many writes to one buffer.
void detach_saved(const Edge& made, const TensorImpl& base) {
  if (!made || base.use_count() == 1) return;  // nobody else can have saved it
  const uint64_t since = base.grad_fn ? base.grad_fn.node->sequence() : 0;
  std::vector<Node*> open{made.node.get()};
  std::unordered_set<const Node*> seen;
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    if ((base.grad_fn && node->sequence() <= since) || !seen.insert(node).second) continue;
    if (auto* saves = dynamic_cast<SavesTensors*>(node)) saves->detach_saved(base);
    for (const Edge& edge : node->next())
      if (edge) open.push_back(edge.node.get());
  }
}

}  // namespace

void rebase_history(const Tensor& t, Edge made, bool overwritten) {
  TensorImpl& impl = *t.impl();
  detach_saved(made, impl.base ? *impl.base : impl);
  if (impl.base) {
    const Tensor base(impl.base);
    auto step = make_ref<CopySlices>(Region(*impl.base, impl));
    step->set_next({base.gradient_edge(), std::move(made)});
    return base.set_grad_fn({std::move(step), 0});
  }
  if (!overwritten) return t.set_grad_fn(std::move(made));
  auto step = make_ref<Overwritten>();
  step->set_next({t.gradient_edge(), std::move(made)});
  t.set_grad_fn({std::move(step), 0});
}

std::string why_not_written(ViewOrigin origin) {
  switch (origin) {
    case ViewOrigin::no_grad:
      return "it was made while grad mode was off, so that its history is not known: make the view and write "
             "either both under a NoGradGuard or both without one";
    case ViewOrigin::own_function:
      return "the forward() of an autograd::Function gave it and it shares elements with an input or another "
             "result: give a clone() there, or compute the new tensor without writing in place";
    default:
      return "it is one of several views that one operator gave (split, chunk, unbind): write to a slice() "
             "of the tensor, or compute the new tensor without writing in place";
  }
}

void refresh_view_history(TensorImpl& t) {
  const uint32_t version = t.storage->version();
  if (t.history_version.load(std::memory_order_acquire) == version) return;
  const Tensor base(t.base);
  // A base without history gives none, not even where a leaf between the two gave one before: as in PyTorch.
  if (t.base->storage != t.storage || (!base.requires_grad() && !t.grad_fn)) return;
  if (t.origin != ViewOrigin::plain)
    throw_invalid(
        "[view] this view was asked for its history after its base, or another view of it, was written "
        "in place with grad mode on; " +
        why_not_written(t.origin));
  static internal::Mutex mutex;  // threads may share a view that they only read
  std::lock_guard lock(mutex);
  if (t.history_version.load(std::memory_order_relaxed) == version) return;
  auto step = make_ref<RegionStep>("AsStrided", Region(*t.base, t), &Region::scatter);
  step->set_next({base.gradient_edge()});
  t.grad_fn = {std::move(step), 0};
  t.history_version.store(version, std::memory_order_release);
}

}  // namespace troupe
