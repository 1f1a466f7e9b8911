// Creation: lines from the pages "Creation Ops" and "Random sampling" of PyTorch's documentation.
#include "tests/pytorch/line.h"

using namespace troupe;

TEST_CASE("tensors of nested lists") {
  LINE("tensor([1, 2, 3])", tensor({1, 2, 3}));
  LINE("tensor([[1, 2],\n        [3, 4]])", tensor({{1, 2}, {3, 4}}));
  LINE("tensor([[0.1000, 1.2000],\n        [2.2000, 3.1000],\n        [4.9000, 5.2000]])",
       tensor({{0.1, 1.2}, {2.2, 3.1}, {4.9, 5.2}}));
  LINE("tensor([[[1, 2],\n         [3, 4]],\n\n        [[5, 6],\n         [7, 8]]])",
       tensor({{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}}));
  LINE("tensor([[1, 2]])", tensor({{1, 2}}));
  LINE("tensor([1.0000, 2.5000])", tensor(std::vector<double>{1, 2.5}));
  LINE("tensor([1.0000, 2.5000], dtype=float64)", tensor(std::vector<double>{1, 2.5}, float64));
  LINE("tensor([3, 4])", tensor(std::vector<int>{3, 4}));
  LINE("tensor([ True, False])", tensor(std::vector<bool>{true, false}));
  LINE("tensor([0., 0.])", zeros({2}, "cpu"));
  LINE("tensor([0, 0])", zeros({2}, tensor(3).options()));
  LINE("tensor([[[1]]])", tensor({{{1}}}));
  LINE("tensor(3.1416)", tensor(3.14159));
  LINE("tensor(7)", tensor(7));
  LINE("tensor([])", tensor({}));
  LINE("tensor([ True, False])", tensor({true, false}));
  LINE("tensor([1.0000, 2.5000])", tensor({1, 2.5}));
  LINE("tensor([[0.1111, 0.2222, 0.3333]], dtype=float64)",
       tensor({{0.11111, 0.222222, 0.3333333}}, dtype(float64)));
  LINE("tensor([1., 2.], dtype=float64)", tensor({1, 2}, float64));
  LINE("tensor([1, 2], dtype=int32)", tensor({1, 2}, int32));
  LINE("tensor([1., 2.], requires_grad=True)", tensor({1.0, 2.0}, requires_grad()));
  LINE("tensor([1., 2.], dtype=float64, requires_grad=True)",
       tensor({1.0, 2.0}, dtype(float64).requires_grad(true)));
  LINE("tensor([1., 2., 3.])", tensor(std::vector<float>{1, 2, 3}));
  LINE("tensor([1, 2, 3])", tensor(std::vector<int64_t>{1, 2, 3}));
}

TEST_CASE("tensors of one number, and of ranges") {
  LINE("tensor([[0., 0., 0.],\n        [0., 0., 0.]])", zeros({2, 3}));
  LINE("tensor([0., 0., 0., 0., 0.])", zeros(5));
  LINE("tensor([[1., 1., 1.],\n        [1., 1., 1.]])", ones({2, 3}));
  LINE("tensor([1, 1], dtype=int32)", ones({2}, int32));
  LINE("tensor([[3.1416, 3.1416, 3.1416],\n        [3.1416, 3.1416, 3.1416]])", full({2, 3}, 3.141592));
  LINE("tensor([3, 3])", full({2}, 3));
  LINE("tensor([True, True])", full({2}, true));
  LINE("tensor([3., 3.])", full({2}, 3, float32));
  LINE("tensor([[1., 0., 0.],\n        [0., 1., 0.],\n        [0., 0., 1.]])", eye(3));
  LINE("tensor([[1., 0., 0.],\n        [0., 1., 0.]])", eye(2, 3));
  LINE("tensor([0, 1, 2, 3, 4])", arange(5));
  LINE("tensor([1, 2, 3])", arange(1, 4));
  LINE("tensor([1.0000, 1.5000, 2.0000])", arange(1, 2.5, 0.5));
  LINE("tensor([0., 1., 2.])", arange(3, float32));
  LINE("tensor([5, 3, 1])", arange(5, 0, -2));
  LINE("tensor([ 3.0000,  4.7500,  6.5000,  8.2500, 10.0000])", linspace(3, 10, 5));
  LINE("tensor([-10.,  -5.,   0.,   5.,  10.])", linspace(-10, 10, 5));
  LINE("tensor([-10.])", linspace(-10, 10, 1));
  LINE("[2, 3]", empty({2, 3}).sizes().str());
  LINE("[2, 3]", empty({2, 3}, dtype(float64).device(cpu)).sizes().str());
}

TEST_CASE("tensors like others") {
  const Tensor x = tensor({{1.5, 2.5}}, float64);
  LINE("tensor([[0., 0.]], dtype=float64)", zeros_like(x));
  LINE("tensor([[1., 1.]], dtype=float64)", ones_like(x));
  LINE("tensor([[7., 7.]], dtype=float64)", full_like(x, 7));
  LINE("tensor([[0, 0]])", zeros_like(x, int64));
  LINE("[1, 2]", empty_like(x).sizes().str());
  LINE("[1, 2]", rand_like(x).sizes().str());
  LINE("float64", name(randn_like(x).dtype()));
  LINE("tensor([[0., 0.]], dtype=float64)", randint_like(x, 1));
}

TEST_CASE("random tensors") {
  manual_seed(1);
  const Tensor u = rand({1000});
  LINE("true", ((u >= 0) & (u < 1)).all().item<bool>());
  LINE("[2, 3]", rand({2, 3}).sizes().str());
  LINE("[4]", randn(4).sizes().str());
  LINE("true", randn({10000}).mean().abs().item<float>() < 0.05);
  LINE("int64", name(randint(10, {5}).dtype()));
  const Tensor dice = randint(1, 7, {600});
  LINE("tensor(1)\ntensor(6)", Tensors{dice.min(), dice.max()});
  LINE("float32", name(randint(3, {2}, float32).dtype()));
  LINE("tensor([0, 1, 2, 3])", randperm(4).sort().values);
  LINE("tensor([[1., 1.],\n        [1., 1.]])", bernoulli(ones({2, 2})));
  LINE("tensor([0., 0.])", zeros({2}).bernoulli());
  const Tensor coins = bernoulli(full({10000}, 0.25));
  LINE("true", std::abs(coins.mean().item<double>() - 0.25) < 0.03);
  const Tensor weights = tensor({0., 10., 3., 0.});
  LINE("tensor([1, 2])", multinomial(weights, 2).sort().values);
  LINE("[4]", multinomial(weights, 4, true).sizes().str());
  LINE("[2, 3]", multinomial(ones({2, 5}), 3).sizes().str());
  manual_seed(5);
  const Tensor first = rand({3});
  manual_seed(5);
  LINE("true", equal(first, rand({3})));
}
