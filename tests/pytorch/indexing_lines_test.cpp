// Indexing, views and joining: lines from PyTorch's pages "Indexing, Slicing, Joining" and "Tensor Views".
#include "tests/pytorch/line.h"

using namespace troupe;

TEST_CASE("x[i]") {
  const Tensor x = tensor({{1, 2, 3}, {4, 5, 6}, {7, 8, 9}});
  LINE("tensor([4, 5, 6])", x[1]);
  LINE("tensor([7, 8, 9])", x[-1]);
  LINE("tensor(6)", x[1][2]);
  LINE("6", x[1][2].item<int64_t>());
  LINE("tensor([[1, 2, 3],\n        [7, 8, 9]])", x[tensor({0, 2})]);
  LINE("tensor([6, 7, 8, 9])", x[x > 5]);
  LINE("tensor([[4, 5, 6],\n        [7, 8, 9]])", x[Slice(1, None)]);
  LINE("tensor([2, 5, 8])", x.index({Slice(), 1}));
  LINE("tensor([3, 6, 9])", x.index({Ellipsis, -1}));
  LINE("tensor([3, 6, 9])", x.index({"...", 2}));
  LINE("[1, 3, 3]", x[None].sizes().str());

  Tensor y = zeros({2, 2}, int64);
  y[0] = tensor({1, 2});
  LINE("tensor([[1, 2],\n        [0, 0]])", y);
  y[1] = 5;
  LINE("tensor([[1, 2],\n        [5, 5]])", y);
  y[1][0] = 7;
  LINE("tensor([[1, 2],\n        [7, 5]])", y);
  y[0] += 10;
  LINE("tensor([[11, 12],\n        [ 7,  5]])", y);
  y.index_put_({y > 10}, 0);
  LINE("tensor([[0, 0],\n        [7, 5]])", y);
  y.index({Slice(), 1}) = 3;
  LINE("tensor([[0, 3],\n        [7, 3]])", y);
}

TEST_CASE("views") {
  const Tensor x = arange(6).view({2, 3});
  LINE("tensor([[0, 1, 2],\n        [3, 4, 5]])", x);
  LINE("tensor([[0, 1],\n        [2, 3],\n        [4, 5]])", x.reshape({3, -1}));
  LINE("tensor([0, 1, 2, 3, 4, 5])", x.view(-1));
  LINE("tensor([0, 1, 2, 3, 4, 5])", x.flatten());
  LINE("tensor([[0, 3],\n        [1, 4],\n        [2, 5]])", x.t());
  LINE("tensor([[0, 3],\n        [1, 4],\n        [2, 5]])", transpose(x, 0, 1));
  LINE("[3, 2]", x.permute({1, 0}).sizes().str());
  LINE("[2, 1, 3]", x.unsqueeze(1).sizes().str());
  LINE("[2, 3]", x.unsqueeze(0).squeeze().sizes().str());
  LINE("[2, 3]", x.unsqueeze(0).squeeze(0).sizes().str());
  LINE("[4, 2, 3]", x.expand({4, -1, -1}).sizes().str());
  LINE("[2, 3]", ones({1, 3}, int64).expand_as(x).sizes().str());
  LINE("[3, 2]", x.view_as(zeros({3, 2})).sizes().str());
  LINE("tensor([3, 4, 5])", x.select(0, 1));
  LINE("tensor([[1, 2],\n        [4, 5]])", x.narrow(1, 1, 2));
  LINE("tensor([0, 1, 2])\ntensor([3, 4, 5])", x.unbind());
  LINE("tensor([0, 3])\ntensor([1, 4])\ntensor([2, 5])", unbind(x, 1));
  LINE("tensor([[0],\n        [3]])\ntensor([[1, 2],\n        [4, 5]])", x.split({1, 2}, 1));
  LINE("tensor([[0, 1, 2]])\ntensor([[3, 4, 5]])", split(x, 1));
  LINE("tensor([[0, 1],\n        [3, 4]])\ntensor([[2],\n        [5]])", x.chunk(2, 1));
  LINE("[3, 2]", x.movedim(0, 1).sizes().str());
  LINE("2", x.size(0));
  LINE("3", x.size(-1));
  LINE("2", x.dim());
  LINE("6", x.numel());
  LINE("3", x.stride(0));
  LINE("true", x.is_contiguous());
  LINE("false", x.t().is_contiguous());
  LINE("8", x.element_size());
}

TEST_CASE("joining, picking and placing") {
  const Tensor x = tensor({{1, 2}, {3, 4}});
  LINE("tensor([[1, 2],\n        [3, 4],\n        [1, 2],\n        [3, 4]])", cat({x, x}));
  LINE("tensor([[1, 2, 1, 2],\n        [3, 4, 3, 4]])", cat({x, x}, 1));
  LINE("[2, 2, 2]", stack({x, x}).sizes().str());
  LINE("tensor([[1, 3],\n        [2, 4]])", stack({x[0], x[1]}, 1));
  LINE("tensor([[1, 1],\n        [4, 3]])", gather(x, 1, tensor({{0, 0}, {1, 0}})));
  LINE("tensor([[1, 1],\n        [4, 3]])", x.gather(1, tensor({{0, 0}, {1, 0}})));
  LINE("tensor([[3, 4],\n        [1, 2]])", index_select(x, 0, tensor({1, 0})));
  LINE("tensor([[2],\n        [4]])", x.index_select(1, tensor({1})));
  LINE("tensor([2, 4])", masked_select(x, tensor({{false, true}, {false, true}})));
  LINE("tensor([3, 4])", x.masked_select(x > 2));
  LINE("tensor([[1, 2],\n        [0, 0]])", x.masked_fill(x > 2, 0));
  LINE("tensor([2, 4])", take(x, tensor({1, 3})));
  LINE("tensor([[0, 1],\n        [1, 0]])", nonzero(tensor({{0, 3}, {5, 0}})));
  LINE("tensor([[1, 0],\n        [0, 4]])", where(tensor({{true, false}, {false, true}}), x, 0));
  LINE("tensor([[1., 0., 0., 0.],\n        [0., 1., 0., 0.]])",
       zeros({2, 4}).scatter_add(1, tensor({{0}, {1}}), ones({2, 1})));
  LINE("tensor([[ 6.,  8.],\n        [ 0.,  0.],\n        [12., 16.]])",
       index_add(zeros({3, 2}), 0, tensor({2, 0, 2}), tensor({{1., 2.}, {3., 4.}, {5., 6.}}), 2));
  LINE("tensor([[1, 2, 1, 2]])", tensor({{1, 2}}).repeat({1, 2}));
  LINE("tensor([3, 1, 2])", roll(tensor({1, 2, 3}), 1));
  LINE("tensor([[2, 1],\n        [4, 3]])", flip(x, 1));
  LINE("tensor([[4, 3],\n        [2, 1]])", x.flip({0, 1}));
  LINE("tensor([[1, 0],\n        [3, 4]])", tril(x));
  LINE("tensor([[1, 2],\n        [0, 4]])", x.triu());
  LINE("tensor([[0, 2],\n        [0, 0]])", x.triu(1));
  LINE("tensor([[0, 1, 0],\n        [0, 0, 1]])", one_hot(tensor({1, 2})));
  LINE("tensor([[1, 0, 0, 0]])", one_hot(tensor({0}), 4));
  LINE("tensor([0, 1, 2, 0])", pad(tensor({1, 2}), {1, 1}));
  LINE("tensor([1, 2, 9])", pad(tensor({1, 2}), {0, 1}, "constant", 9));
  LINE("tensor([0, 2, 1])", bincount(tensor({1, 1, 2})));
  LINE("tensor([1, 1])", diff(tensor({1, 2, 3})));
}
