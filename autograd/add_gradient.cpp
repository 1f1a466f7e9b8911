// Sums of gradients; recorded when grad mode is on.
#include "autograd/add_gradient.h"

#include "core/base/error.h"
#include "core/graph/copy_on_write.h"
#include "core/graph/inplace_write.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "core/tensor/elements.h"

namespace troupe::internal::autograd {
namespace {

constexpr const char* kWriter = "backward (accumulation of gradients)";

// The recorded sum: its gradient goes to all terms (one, if it is a copy).
class GradientSum final : public Node {
 public:
  Tensors apply(Tensors&& grads) override { return Tensors(next().size(), grads[0]); }
  std::string name() const override { return "GradientSum"; }
};

void check_same(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype() || a.device() != b.device())
    throw_invalid("[backward] gradients of one tensor differ: " + a.summary() + " and " + b.summary());
}

bool recorded(const Tensor& a, const Tensor& b) {
  return grad_enabled() && (a.requires_grad() || b.requires_grad());
}

Tensor fresh_sum(const Tensor& a, const Tensor& b) {
  const Tensor out = empty_like(a);
  add_elements(out, a, b);
  if (recorded(a, b)) {
    auto node = make_ref<GradientSum>();
    node->set_next({a.gradient_edge(), b.gradient_edge()});
    out.set_grad_fn({std::move(node), 0});
  }
  return out;
}

// The same elements, -0 included, with the history of `a`.
Tensor recorded_copy(const Tensor& a) {
  const Tensor out = a.clone_data();
  auto node = make_ref<GradientSum>();
  node->set_next({a.gradient_edge()});
  out.set_grad_fn({std::move(node), 0});
  return out;
}

}  // namespace

void add_gradient(Tensor& kept, const Tensor& grad) {
  const bool keep_history = grad_enabled() && grad.requires_grad();
  if (!kept.defined()) {
    if (grad.is_exclusive() && (keep_history || !grad.requires_grad()))
      kept = grad;
    else
      kept = keep_history                 ? recorded_copy(grad)
             : grad.storage()->borrowed() ? internal::lazy_copy(grad)  // until somebody adds to it
                                          : grad.clone_data();
    return;
  }
  check_same(kept, grad);
  if (recorded(kept, grad) || !kept.is_contiguous()) {
    kept = fresh_sum(kept, grad);
  } else {
    begin_write(kept, kWriter);
    add_elements(kept, kept, grad);
    kept.bump_version(kWriter);
  }
}

bool worth_adding_to(const Tensor& leaf) {
  constexpr int64_t kFew = 4096;  // elements
  return leaf.numel() >= kFew;
}

bool can_add_to(const Tensor& kept, const Tensor& leaf) {
  return kept.defined() && kept.is_contiguous() && kept.shape() == leaf.shape() &&
         kept.dtype() == leaf.dtype() && kept.device() == leaf.device() && !kept.requires_grad();
}

Tensor sum_gradients(Tensor a, Tensor b) {
  check_same(a, b);
  if (recorded(a, b)) return fresh_sum(a, b);
  if (a.is_exclusive()) {
    add_elements(a, a, b);
    return a;
  }
  if (b.is_exclusive()) {
    add_elements(b, b, a);
    return b;
  }
  return fresh_sum(a, b);
}

}  // namespace troupe::internal::autograd
