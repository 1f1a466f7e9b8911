// Pointwise operators, reductions, comparisons and products: lines from PyTorch's page "Math operations".
#include "tests/pytorch/line.h"

using namespace troupe;

TEST_CASE("pointwise functions and methods") {
  const Tensor x = tensor({-1.5, 0., 2.}), y = tensor({1., 2., 3.});
  LINE("tensor([-0.5000,  2.0000,  5.0000])", x.add(y));
  LINE("tensor([-0.5000,  2.0000,  5.0000])", add(x, y));
  LINE("tensor([0.5000, 4.0000, 8.0000])", x.add(y, 2));
  LINE("tensor([ 8.5000, 10.0000, 12.0000])", add(x, 10));
  LINE("tensor([-2.5000, -2.0000, -1.0000])", x.sub(y));
  LINE("tensor([-3.5000, -4.0000, -4.0000])", sub(x, y, 2));
  LINE("tensor([-1.5000,  0.0000,  6.0000])", x.mul(y));
  LINE("tensor([-3.,  0.,  4.])", mul(x, 2));
  LINE("tensor([-0.7500,  0.0000,  1.0000])", x.div(2));
  LINE("tensor([-2.,  0.,  0.])", floor_divide(x, y));
  LINE("tensor([1, 0, 1])", remainder(tensor({-3, 2, 3}), 2));
  LINE("tensor([-1,  0,  1])", fmod(tensor({-3, 2, 3}), 2));
  LINE("tensor([1., 4., 9.])", y.pow(2));
  LINE("tensor([2., 4., 8.])", pow(2, y));
  LINE("tensor([1.5000, 0.0000, 2.0000])", x.abs());
  LINE("tensor([ 1.5000, -0.0000, -2.0000])", x.neg());
  LINE("tensor([-1.,  0.,  1.])", x.sign());
  LINE("tensor([-2.,  0.,  2.])", x.floor());
  LINE("tensor([-1., -0.,  2.])", tensor({-1.5, -0.5, 2.}).ceil());
  LINE("tensor([-2.,  0.,  2.])", round(x));
  LINE("tensor([-1.,  0.,  2.])", trunc(x));
  LINE("tensor([1.0000, 2.7183])", tensor({0., 1.}).exp());
  LINE("tensor([0.0000, 0.6931, 1.0986])", y.log());
  LINE("tensor([0.0000, 1.0000, 1.5850])", log2(y));
  LINE("tensor([0.6931, 1.0986, 1.3863])", y.log1p());
  LINE("tensor([1.0000, 1.4142, 1.7321])", y.sqrt());
  LINE("tensor([1.0000, 0.7071, 0.5774])", y.rsqrt());
  LINE("tensor([1.0000, 0.5000, 0.3333])", y.reciprocal());
  LINE("tensor([0.8415, 0.9093, 0.1411])", y.sin());
  LINE("tensor([ 0.5403, -0.4161, -0.9900])", cos(y));
  LINE("tensor([0.8427, 0.9953, 1.0000])", erf(y));
  LINE("tensor([0.7616, 0.9640, 0.9951])", y.tanh());
  LINE("tensor([0.1824, 0.5000, 0.8808])", x.sigmoid());
  LINE("tensor([0., 0., 2.])", x.relu());
  LINE("tensor([-1.,  0.,  1.])", x.clamp(-1, 1));
  LINE("tensor([0., 0., 2.])", clamp(x, 0));
  LINE("tensor([1., 2., 3.])", maximum(x, y));
  LINE("tensor([-1.5000,  0.0000,  2.0000])", x.minimum(y));
  LINE("tensor([1.0000, 2.0000, 2.5000])", lerp(y, tensor({1., 2., 2.}), 0.5));
  LINE("tensor([2., 4., 6.])", addcmul(y, y, ones(3)));
  LINE("tensor([2., 3., 4.])", y.addcdiv(y, y));
  LINE("tensor([0.7854])", atan2(tensor({1.}), tensor({1.})));
  LINE("tensor([2., 3., 4.])", y + 1);
  LINE("tensor([-0., 1., 2.])", -(1 - y));
  LINE("tensor([0.5000, 1.0000, 1.5000])", y / 2);
}

TEST_CASE("comparisons and logic") {
  const Tensor x = tensor({1, 2, 3}), y = tensor({3, 2, 1});
  LINE("tensor([False, False,  True])", x > 2);
  LINE("tensor([False,  True,  True])", x >= y);
  LINE("tensor([ True, False, False])", x < 2);
  LINE("tensor([ True,  True, False])", x <= y);
  LINE("tensor([False,  True, False])", x == y);
  LINE("tensor([ True, False,  True])", x != y);
  LINE("tensor([ True, False, False])", 2 > x);
  LINE("tensor([False,  True, False])", x == 2);
  LINE("tensor([False,  True, False])", x.eq(2));
  LINE("tensor([False, False,  True])", gt(x, y));
  LINE("tensor([False,  True, False])", (x > 1) & (x < 3));
  LINE("tensor([ True, False,  True])", (x < 2) | (x > 2));
  LINE("tensor([ True,  True, False])", ~(x > 2));
  LINE("tensor([ True,  True, False])", logical_not(x > 2));
  LINE("tensor([False, False,  True])", x.logical_and(x > 2));
  LINE("tensor([ True, False, False])", isnan(tensor({NAN, 1., INFINITY})));
  LINE("tensor([False, False,  True])", tensor({NAN, 1., INFINITY}).isinf());
  LINE("tensor([False,  True, False])", tensor({NAN, 1., INFINITY}).isfinite());
  LINE("true", equal(x, x.clone()));
  LINE("true", allclose(tensor({10000., 1e-08}), tensor({10000.1, 1e-09})));
  LINE("false", tensor({1.}).allclose(tensor({1.01})));
  LINE("tensor(True)", (x > 0).all());
  LINE("tensor(False)", any(x > 3));
  LINE("tensor([False,  True])", tensor({{0, 0}, {0, 1}}).any(1));
}

TEST_CASE("reductions") {
  const Tensor x = tensor({{1., 2., 3.}, {4., 5., 6.}});
  LINE("tensor(21.)", x.sum());
  LINE("tensor([ 6., 15.])", x.sum(1));
  LINE("tensor([[ 6.],\n        [15.]])", sum(x, 1, true));
  LINE("tensor(21.)", x.sum({0, 1}));
  LINE("tensor(3.5000)", mean(x));
  LINE("tensor([2.5000, 3.5000, 4.5000])", x.mean(0));
  LINE("tensor(720.)", x.prod());
  LINE("tensor([  6., 120.])", x.prod(1));
  LINE("tensor(3.5000)", x.var());
  LINE("tensor([1., 1.])", x.var(1));
  LINE("tensor([0.8165, 0.8165])", x.std(1, false));
  LINE("tensor(1.8708)", x.std());
  LINE("tensor(6.)", x.max());
  LINE("tensor([3., 6.])\ntensor([2, 2])", x.max(1));
  LINE("tensor([1., 2., 3.])\ntensor([0, 0, 0])", min(x, 0));
  LINE("tensor([3., 6.])", x.max(1).values);
  LINE("tensor(3.)", x.median());
  LINE("tensor(5)", x.argmax());
  LINE("tensor([2, 2])", argmax(x, 1));
  LINE("tensor([[0],\n        [0]])", x.argmin(1, true));
  LINE("tensor([4., 5., 6.])", x.amax(0));
  LINE("tensor(9.5394)", x.norm());
  LINE("tensor(21.)", x.norm(1));
  LINE("tensor([3.7417, 8.7750])", x.norm(2, 1));
  LINE("tensor([3.4076, 6.4076])", x.logsumexp(1));
  LINE("tensor([[ 1.,  3.,  6.],\n        [ 4.,  9., 15.]])", x.cumsum(1));
  LINE("tensor([[  1.,   2.,   6.],\n        [  4.,  20., 120.]])", cumprod(x, 1));
  LINE("tensor([0.0900, 0.2447, 0.6652])", softmax(x[0], 0));
  LINE("tensor([-2.4076, -1.4076, -0.4076])", x[0].log_softmax(0));
  LINE("tensor([6., 5.])\ntensor([2, 1])", topk(x[1], 2));
  LINE("tensor([3., 2., 1.])\ntensor([2, 1, 0])", x[0].sort(0, true));
  LINE("tensor([1, 2, 0])", argsort(tensor({3, 1, 2})));
  LINE("tensor(2)", count_nonzero(tensor({0, 1, 2})));
}

TEST_CASE("products of matrices") {
  const Tensor a = tensor({{1., 2.}, {3., 4.}}), b = tensor({{5., 6.}, {7., 8.}}), v = tensor({1., 2.});
  LINE("tensor([[19., 22.],\n        [43., 50.]])", matmul(a, b));
  LINE("tensor([[19., 22.],\n        [43., 50.]])", a.mm(b));
  LINE("tensor([ 5., 11.])", a.mv(v));
  LINE("tensor(5.)", dot(v, v));
  LINE("tensor([[1., 2.],\n        [2., 4.]])", outer(v, v));
  LINE("tensor([[[19., 22.],\n         [43., 50.]]])", bmm(a.unsqueeze(0), b.unsqueeze(0)));
  LINE("[10, 3, 5]", bmm(randn({10, 3, 4}), randn({10, 4, 5})).sizes().str());
  LINE("tensor(5.)", einsum("ii", {a}));
  LINE("tensor([1., 4.])", einsum("ii->i", {a}));
  LINE("tensor([[19., 22.],\n        [43., 50.]])", einsum("ij,jk->ik", {a, b}));
  LINE("tensor([[1., 3.],\n        [2., 4.]])", einsum("ij->ji", {a}));
  LINE("tensor([[1., 2.],\n        [2., 4.]])", einsum("i,j->ij", {v, v}));
  LINE("[3, 2, 4]", einsum("bij,bjk->bik", {randn({3, 2, 5}), randn({3, 5, 4})}).sizes().str());
  LINE("[2, 5, 3, 4]", einsum("...ij->...ji", {randn({2, 5, 4, 3})}).sizes().str());
  LINE("tensor(70.)", einsum("ij,ij->", {a, b}));
}

TEST_CASE("dtypes, copies and writes in place") {
  Tensor x = tensor({1., 2.});
  LINE("tensor([1, 2])", x.to(int64));
  LINE("tensor([1., 2.], dtype=float64)", x.to(float64));
  LINE("tensor([1., 2.], dtype=bfloat16)", x.to(bfloat16));
  LINE("tensor([1, 2])", x.type_as(tensor({0})));
  LINE("true", x.is_floating_point());
  LINE("tensor([2., 3.])", x.add_(1));
  LINE("tensor([4., 6.])", x.mul_(2));
  LINE("tensor([0., 0.])", x.zero_());
  LINE("tensor([7., 7.])", x.fill_(7));
  LINE("tensor([1., 2.])", x.copy_(tensor({1, 2})));
  LINE("tensor([1., 1.])", x.clamp_(0, 1));
  x += 1;
  LINE("tensor([2., 2.])", x);
  LINE("2", x[0].item<float>());
  LINE("2", x[0].item<int64_t>());
  LINE("tensor([2.5000])", tensor({1}) + 1.5);
  LINE("tensor([0.5000])", tensor({1}) / 2);
}
