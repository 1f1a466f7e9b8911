// Modules, losses and optimizers: lines from PyTorch's pages "torch.nn" and "torch.optim".
#include "tests/pytorch/line.h"

using namespace troupe;

TEST_CASE("modules") {
  nn::Linear m(20, 30);
  LINE("[128, 30]", m(randn({128, 20})).sizes().str());
  LINE("[30, 20]", m.weight.sizes().str());
  LINE("2", m.parameters().size());
  LINE("false", nn::Linear(2, 3, false).bias.defined());
  nn::ReLU relu;
  LINE("tensor([0., 1.])", relu(tensor({-1., 1.})));
  nn::Sequential net(nn::Linear(4, 8), nn::ReLU(), nn::Linear(8, 2));
  LINE("[5, 2]", net(zeros({5, 4})).sizes().str());
  LINE("4", net.named_parameters().size());
  LINE("0.weight", net.named_parameters()[0].first);
  LINE("true", net.training());
  net.eval();
  LINE("false", net.training());
  net.train();
  net.requires_grad_(false);
  LINE("false", net(zeros({5, 4})).requires_grad());
  net.requires_grad_();
  net.zero_grad();
  net.to(float64);
  LINE("tensor([], size=(0, 2), dtype=float64, grad_fn=<LinearBackward>)", net(zeros({0, 4}, float64)));
  net.load_state_dict(net.state_dict());
  nn::init::constant_(m.bias, 0.5);
  LINE("0.5", m.bias[3].item<float>());
  nn::init::ones_(m.weight);
  LINE("20.5", m(ones({1, 20}))[0][0].item<float>());
  nn::Embedding embedding(10, 3);
  LINE("[2, 4, 3]", embedding(tensor({{1, 2, 4, 5}, {4, 3, 2, 9}})).sizes().str());
  nn::Conv2d conv(16, 33, 3, {.stride = 2});
  LINE("[20, 33, 24, 49]", conv(randn({20, 16, 50, 100})).sizes().str());
  nn::LayerNorm norm(4);
  LINE("[2, 4]", norm(randn({2, 4})).sizes().str());
  nn::Dropout drop(0.5);
  drop.eval();
  LINE("tensor([1., 2.])", drop(tensor({1., 2.})));
}

TEST_CASE("functions of modules, and losses") {
  const Tensor x = tensor({{2., 0., -1.}, {0., 1., 0.}}), target = tensor({0, 1});
  LINE("tensor(0.3606)", cross_entropy(x, target));
  LINE("tensor([0.1698, 0.5514])", cross_entropy(x, target, "none"));
  LINE("tensor(0.3606)", nll_loss(log_softmax(x, 1), target));
  LINE("tensor(0.5000)", mse_loss(tensor({1., 2.}), tensor({1., 3.})));
  LINE("tensor(1.)", mse_loss(tensor({1., 2.}), tensor({1., 3.}), "sum"));
  LINE("tensor(0.5000)", l1_loss(tensor({1., 2.}), tensor({1., 3.})));
  LINE("tensor(0.6931)", binary_cross_entropy_with_logits(zeros(3), ones(3)));
  LINE("tensor([-0.0100,  1.0000])", leaky_relu(tensor({-1., 1.})));
  LINE("tensor([-0.6321,  1.0000])", elu(tensor({-1., 1.})));
  LINE("tensor([-0.1587,  0.8413])", gelu(tensor({-1., 1.})));
  LINE("tensor([-0.2689,  0.7311])", silu(tensor({-1., 1.})));
  LINE("tensor([0.3133, 1.3133])", softplus(tensor({-1., 1.})));
  LINE("tensor([[-1.2247,  0.0000,  1.2247]])", layer_norm(tensor({{1., 2., 3.}}), {3}));
  LINE("tensor([1., 2.])", dropout(tensor({1., 2.}), 0.5, false));
  LINE("tensor([[5., 6.]])", embedding(tensor({2}), tensor({{1., 2.}, {3., 4.}, {5., 6.}})));
  LINE("tensor([[[[4.]]]])", max_pool2d(arange(1, 5, float32).view({1, 1, 2, 2}), 2));
  LINE("tensor([[[[2.5000]]]])", avg_pool2d(arange(1, 5, float32).view({1, 1, 2, 2}), 2));
  LINE("tensor([[3., 5.]])", linear(ones({1, 2}), tensor({{1., 2.}, {2., 3.}})));
}

TEST_CASE("a step of an optimizer") {
  Tensor w = tensor({1., 2.}, requires_grad());
  optim::SGD sgd({w}, {.lr = 0.1, .momentum = 0.9});
  sgd.zero_grad();
  (w * w).sum().backward();
  sgd.step();
  LINE("tensor([0.8000, 1.6000], requires_grad=True)", w);
  Tensor v = tensor({1., -1.}, requires_grad());
  optim::Adam adam({v}, {.lr = 1e-1});
  v.pow(2).sum().backward();
  adam.step();
  LINE("tensor([ 0.9000, -0.9000], requires_grad=True)", v);
  optim::clip_grad_norm_({w}, 1.0);
  LINE("true", w.grad().norm().item<float>() <= 1);

  manual_seed(0);
  nn::Sequential net(nn::Linear(1, 16), nn::Tanh(), nn::Linear(16, 1));
  optim::AdamW optimizer(net.parameters(), {.lr = 0.05});
  const Tensor x = linspace(-1, 1, 32).unsqueeze(1), y = x * x;
  double loss_before = 0, loss_after = 0;
  for (int step = 0; step < 200; ++step) {
    optimizer.zero_grad();
    const Tensor loss = mse_loss(net(x), y);
    loss.backward();
    optimizer.step();
    (step ? loss_after : loss_before) = loss.item();
  }
  LINE("true", loss_after < 0.1 * loss_before);
}
