// What PyTorch's documentation prints of tensors.
#include "tests/pytorch/line.h"

using namespace troupe;

TEST_CASE("numbers are printed as PyTorch prints them") {
  LINE("tensor([0.1000, 1.0000])", tensor({0.1, 1.0}));
  LINE("tensor([1.0000e-05, 1.0000e+00])", tensor({0.00001, 1.0}));
  LINE("tensor([1.0000e+09, 5.0000e-01])", tensor({1e9, 0.5}));
  LINE("tensor([1.0000e+09])", tensor({1e9}));
  LINE("tensor([100000000.])", tensor({1e8}));
  LINE("tensor([1.0000e+00, 1.0000e+05])", tensor({1.0, 100000.0}));
  LINE("tensor([1.0000, 0.5000,    nan,    inf])", tensor({1., 0.5, NAN, INFINITY}));
  LINE("tensor([1., nan, inf])", tensor({1., NAN, INFINITY}));
  LINE("tensor([-inf, 2.])", tensor({-INFINITY, 2.}));
  LINE("tensor(nan)", tensor(NAN));
  LINE("tensor(0.1000)", tensor(0.1));
  LINE("tensor(1.0000e-10)", tensor(1e-10));
  LINE("tensor(-1)", tensor(-1));
  LINE("tensor(True)", tensor(true));
  LINE("tensor([  1, -10, 100])", tensor({1, -10, 100}));
  LINE("tensor([  0, 255], dtype=uint8)", tensor({0, 255}, uint8));
  LINE("tensor([0.5000], dtype=float16)", tensor({0.5}, float16));
  LINE("tensor([1.0000e+00, 1.0010e+03, 1.2346e-01])", tensor({1., 1001., 0.123456}));
  LINE("tensor([999.5000,   1.2346])", tensor({999.5, 1.23456}));
}

TEST_CASE("long tensors are shortened") {
  LINE("tensor([   0,    1,    2,  ...,  998,  999, 1000])", arange(1001));
  LINE(
      "tensor([[0., 0., 0.,  ..., 0., 0., 0.],\n        [0., 0., 0.,  ..., 0., 0., 0.],\n"
      "        [0., 0., 0.,  ..., 0., 0., 0.],\n        ...,\n        [0., 0., 0.,  ..., 0., 0., 0.],\n"
      "        [0., 0., 0.,  ..., 0., 0., 0.],\n        [0., 0., 0.,  ..., 0., 0., 0.]])",
      zeros({100, 100}));
  LINE(
      "tensor([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3,\n"
      "        4, 5, 6, 7, 8, 9])",
      remainder(arange(30), 10));
}

TEST_CASE("shape, dtype and history follow where they are not plain") {
  LINE("tensor([], size=(0, 3))", zeros({0, 3}));
  LINE("tensor([], dtype=int64)", zeros({0}, int64));
  LINE("tensor([], size=(2, 0), dtype=float64)", zeros({2, 0}, float64));
  LINE("tensor([[1.]], requires_grad=True)", ones({1, 1}, requires_grad()));
  LINE("tensor([2.], grad_fn=<AddBackward>)", ones(1, requires_grad()) + 1);
  const Tensor x = tensor({1, 2});
  CHECK(x.str() == "tensor([1, 2])");
  CHECK(Tensor().str() == "tensor(undefined)");
  LINE("[2, 3]", zeros({2, 3}).sizes());
  LINE("float64", zeros({2}, float64).dtype());
  LINE("cpu", zeros({2}).device());
}
