// Gradients: lines from PyTorch's pages "Automatic differentiation" and "Autograd mechanics".
#include "tests/pytorch/line.h"

using namespace troupe;

TEST_CASE("gradients of leaves") {
  Tensor x = tensor({1., 2., 3.}, requires_grad());
  LINE("tensor([1., 2., 3.], requires_grad=True)", x);
  Tensor y = x * x;
  LINE("tensor([1., 4., 9.], grad_fn=<MulBackward>)", y);
  y.sum().backward();
  LINE("tensor([2., 4., 6.])", x.grad());
  (x * 2).backward(ones(3));
  LINE("tensor([4., 6., 8.])", x.grad());
  x.grad().zero_();
  LINE("tensor([0., 0., 0.])", x.grad());

  Tensor w = randn({2, 2}).requires_grad_();
  LINE("true", w.requires_grad());
  LINE("true", w.is_leaf());
  LINE("false", (w * 2).is_leaf());
  LINE("false", w.detach().requires_grad());
  w.requires_grad_(false);
  LINE("false", w.requires_grad());
  {
    NoGradGuard no_grad;
    LINE("false", (x * 2).requires_grad());
  }
}

TEST_CASE("passes that are kept, second derivatives, and grad()") {
  const Tensor x = tensor(3., requires_grad());
  const Tensor y = x.pow(3);
  LINE("tensor(27., grad_fn=<PowBackward>)", y);
  y.backward({}, true);
  y.backward();
  LINE("tensor(54.)", x.grad());
  const Tensor z = x * x * x;
  const Tensor first = autograd::grad({z}, {x}, {}, {.create_graph = true})[0];
  LINE("27", first.item<float>());
  LINE("tensor(18.)", autograd::grad({first}, {x})[0]);
  const auto [values, indices] = (tensor({{1., 5.}, {7., 2.}}, requires_grad())).max(1);
  LINE("tensor([1, 0])", indices);
  LINE("tensor([5., 7.])", values.detach());
  const Tensor v = tensor({1., 2.}, requires_grad());
  const auto hook = autograd::register_hook(v, [](const Tensor& g) { return g * 10; });
  v.sum().backward();
  LINE("tensor([10., 10.])", v.grad());
  const Tensor a = tensor({{1., 2.}, {3., 4.}}, requires_grad());
  einsum("ij,jk->ik", {a, a}).sum().backward();
  LINE("tensor([[ 7., 11.],\n        [ 9., 13.]])", a.grad());
}
