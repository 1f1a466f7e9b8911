// Convolution, pooling, batch and group normalization beside PyTorch's layers.
#include "core/base/error.h"
#include "ops/ops.h"
#include "tests/nn/reference.h"
#include "tests/support/error_of.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;
using Names = std::vector<std::string>;
using Values = std::vector<double>;

TEST_CASE("conv2d has PyTorch's values") {
  auto conv = filled(
      nn::Conv2d(2, 4, {2, 3},
                 {.stride = {1, 2}, .padding = {1, 0}, .dilation = {2, 1}, .groups = 2, .dtype = float64}));
  CHECK(names_of(conv.named_parameters()) == Names{"weight", "bias"});
  CHECK(conv.weight.shape() == Shape{4, 1, 2, 3});
  check_values(
      conv(wave({1, 2, 3, 5})),
      {1.05803978009513,   -0.0874398632394542, 0.988876150059809,  1.05106334853198,  -0.109057580251755,
       0.996311555144287,  0.655874613126717,   -0.500701765161724, 0.805489868662087, 0.68273078532542,
       -0.30564970000669,  0.85701366841686,    0.322626984403025,  0.482379947334382, -0.805188356799716,
       0.089226452111089,  -0.817417475712085,  -1.07972347360943,  0.15665151343228,  0.103822633322392,
       -0.904259179744176, -0.0424006011616724, -1.13196158830031,  -1.18596405962643});
  check_gradients(conv, wave({1, 2, 3, 5}));
  CHECK(conv.str() == "Conv2d(2, 4, 2x3)");
  CHECK_THAT(text_of([] { nn::Conv2d(2, 3, 3, {.groups = 2}); }),
             Contains("2 groups do not divide 2 inputs"));
  CHECK_THAT(text_of([] { nn::Conv2d(2, 0, 3); }), Contains("[conv2d] sizes must be at least 1"));
}

TEST_CASE("conv2d starts uniform in +-1/sqrt(inputs of an output)") {
  const nn::Conv2d conv(8, 64, 3);
  for (const Tensor& t : {conv.weight, conv.bias}) {
    double most = 0;
    for (const double w : t.to_vector<double>()) most = std::max(most, std::abs(w));
    CHECK(most <= 1 / std::sqrt(72.0) * (1 + 1e-6));
    CHECK(most > 0.9 / std::sqrt(72.0));
  }
  CHECK_FALSE(nn::Conv2d(1, 1, 1, {.bias = false}).bias.defined());
}

TEST_CASE("pools and flatten have PyTorch's values") {
  check_values(nn::MaxPool2d(2)(wave({1, 1, 4, 4})),
               {1, 0.186512369422575, 0.999858636383415, 0.753902254343305});
  check_values(nn::AvgPool2d({2, 2}, ops::Pair{1, 1}, {1, 1})(wave({1, 1, 2, 2})),
               {0.25, 0.441210546821122, 0.191210546821122, 0.29249178572506, 0.357490806396218,
                0.0649990206711578, 0.0424917857250603, -0.083719740424904, -0.126211526149964});
  CHECK(nn::Flatten()(wave({2, 3, 4})).shape() == Shape{2, 12});
  CHECK(nn::Flatten()(wave({0, 3, 4})).shape() == Shape{0, 12});
  CHECK_THAT(text_of([] { nn::Flatten()(tensor(1.0)); }), Contains("[flatten]"));
}

TEST_CASE("group norm has PyTorch's values") {
  auto norm = filled(nn::GroupNorm(2, 4, {.dtype = float64}));
  check_values(norm(wave({2, 4, 1, 2})),
               {0.958697575275443, 0.788867220613275, 0.0597139356072752, -0.466916944150292,
                -0.332748645659031, -0.331865687729045, -0.545449098788059, -1.10126195875301,
                0.635305252263375, 0.936012713167917, 0.326635142904295, -0.543385013651115,
                -0.208626375263177, -0.345119103566389, -0.137475903594337, -0.914664426979252});
  check_gradients(norm, wave({2, 4, 1, 2}));
  CHECK(norm.str() == "GroupNorm(2, 4)");
  CHECK_THAT(text_of([] { nn::GroupNorm(3, 4); }),
             Contains("[group_norm] 3 groups do not divide 4 channels"));
}

TEST_CASE("batch norm has PyTorch's values, and its running statistics") {
  auto norm = filled(nn::BatchNorm2d(2, {.dtype = float64}));
  CHECK(names_of(norm.named_buffers()) == Names{"running_mean", "running_var", "num_batches_tracked"});
  const Tensor mean = norm.running_mean;
  check_values(norm(wave({2, 2, 1, 2})),
               {0.967753732233872, 0.85958494033095, 0.649439470669702, -0.258257951002253,
                0.0743628566725586, 0.0770149640093826, -0.238639154160702, 0.671694604976766});
  norm(wave({2, 2, 1, 2}, 1));
  check_values(norm.running_mean, {-0.0173189714095013, -0.022882460900652});
  check_values(norm.running_var, {0.940110240305412, 0.910133319374067});
  CHECK(mean.is_same(norm.running_mean));  // in place
  CHECK(norm.num_batches_tracked.item() == 2);
  norm.eval();
  check_values(norm(wave({1, 2, 2, 2}, 2)),
               {0.321616635653124, 0.109892294057664, 0.0826737185762852, 0.252762230559855,
                0.258663046039013, 0.554690574636824, 0.691880110115775, 0.605709270294492});
  CHECK(norm.num_batches_tracked.item() == 2);
  check_gradients(norm, wave({1, 2, 2, 2}));
  norm.train();
  check_gradients(norm, wave({2, 2, 1, 2}));
  Generator random(1);
  norm.reset(random);
  CHECK(norm.running_mean.to_vector<double>() == Values{0, 0});
  CHECK(norm.running_var.to_vector<double>() == Values{1, 1});
  CHECK(norm.num_batches_tracked.item() == 0);
}

TEST_CASE("batch norm's updates do not disturb backward passes that are still to come") {
  nn::BatchNorm2d norm(2, {.dtype = float64});
  const Tensor x = wave({2, 2, 1, 2}).requires_grad_();
  const Tensor first = norm(x);
  norm.eval();
  const Tensor used = norm(x);
  norm.train();
  norm(x);
  autograd::backward(first.sum());
  autograd::backward(used.sum());
  CHECK(x.grad().defined());
  CHECK_FALSE(norm.running_mean.requires_grad());
}

TEST_CASE("batch norm counts parts of a batch as the whole, or forgets them") {
  const Tensor x = wave({5, 2, 1, 3});
  nn::BatchNorm2d whole(2, {.dtype = float64}), parts(2, {.dtype = float64});
  whole(x);
  for (const bool keep : {false, true}) {
    parts.set_statistics(nn::Statistics::gather);
    for (const auto& [begin, end] : {std::pair(0, 1), {1, 4}, {4, 5}}) parts(x.slice(0, begin, end));
    parts.set_statistics(nn::Statistics::leave);
    parts(x);
    CHECK(parts.num_batches_tracked.item() == 0);
    CHECK(parts.running_mean.to_vector<double>() == Values{0, 0});
    parts.settle(keep);
  }
  CHECK(parts.num_batches_tracked.item() == 1);
  check_values(parts.running_mean, whole.running_mean.to_vector<double>());
  check_values(parts.running_var, whole.running_var.to_vector<double>());
  parts.settle();  // nothing was gathered
  CHECK(parts.num_batches_tracked.item() == 1);
  whole(x), parts(x);  // passes move them again
  check_values(parts.running_var, whole.running_var.to_vector<double>());
}

TEST_CASE("batch norm in half precision moves its statistics by means that are not rounded") {
  nn::BatchNorm2d norm(1, {.momentum = 0.75, .dtype = bfloat16});
  norm(tensor({{{{256., 258.}}}}, bfloat16));
  CHECK(norm.running_mean.item() == 193);  // 0.75 of 257, which bfloat16 does not have
  CHECK(norm.running_mean.dtype() == bfloat16);
}

TEST_CASE("batch norm refuses what it cannot train on") {
  nn::BatchNorm2d norm(2);
  CHECK_THAT(text_of([&] { norm(zeros({1, 2, 1, 1})); }), Contains("at least 2 values per channel"));
  CHECK_THAT(text_of([&] {
               norm(zeros({4, 3, 2, 2}));
             }),
             Contains("got float32 [4, 3, 2, 2], expected [batch, 2, height, width]"));
  CHECK(norm.num_batches_tracked.item() == 0);
  nn::BatchNorm2d exact(2, {.eps = 0});
  CHECK_THAT(text_of([&] { exact(ones({2, 2, 2, 2})); }), Contains("eps must be above 0, got 0"));
  exact.eval();
  CHECK(bit_equal(exact(ones({2, 2, 2, 2})).detach(), ones({2, 2, 2, 2})));
  CHECK_THAT(text_of([] { nn::BatchNorm2d(2, {.momentum = 2}); }),
             Contains("momentum must be in [0, 1], got 2"));
}

TEST_CASE("an image network trains, is summed up, and goes through its state") {
  const auto make = [] {
    return nn::Sequential(nn::Conv2d(1, 4, 3, {.padding = {1, 1}}), nn::BatchNorm2d(4), nn::ReLU(),
                          nn::MaxPool2d(2), nn::Flatten(), nn::Linear(16, 3));
  };
  nn::Sequential net = make(), other = make();
  const Tensor x = ops::to(wave({4, 1, 4, 4}), float32);
  autograd::backward(net(x).sum());
  for (const Tensor& p : net.parameters()) CHECK(p.grad().defined());
  other.load_state_dict(net.state_dict());
  net.eval(), other.eval();
  CHECK(bit_equal(net(x), other(x)));
  CHECK(net.state_dict().contains("1.num_batches_tracked"));
  CHECK_THAT(nn::summary(net, {4, 1, 4, 4}), Contains("Conv2d(1, 4, 3x3)  [4, 4, 4, 4]"));
}
