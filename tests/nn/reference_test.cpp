// Embedding, normalization and attention beside PyTorch's layers.
#include "tests/nn/reference.h"
#include "core/base/error.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;
using Names = std::vector<std::string>;

TEST_CASE("layer norm and rms norm have PyTorch's values") {
  auto norm = filled(nn::LayerNorm(4, {.dtype = float64}));
  check_values(norm(wave({2, 4})),
               {0.958697575275443, 0.523960257282892, -0.294722871894737, 0.0601187191174109,
                0.132509780419258, -0.179613338586672, -0.263534806153588, -1.10126195875301});
  check_gradients(norm, wave({2, 4}));
  auto square = filled(nn::LayerNorm({2, 2}, {.eps = 0.1, .dtype = float64}));
  check_values(square(wave({2, 2, 2})),
               {0.902496265601725, 0.485456501031395, -0.291971985750415, -0.00772153648364143,
                0.196068592349593, -0.111929832136658, -0.265022255507692, -0.995742792823503});
  auto rms = filled(nn::RMSNorm(4, {.eps = 1e-6, .dtype = float64}));
  check_values(rms(wave({2, 4})),
               {0.615550953692458, 0.508747935636838, 0.0175460123121974, 0.279490099311583,
                -0.555124210668042, -0.59619905486929, -0.0484410342276294, -0.0988297781498691});
  check_gradients(rms, wave({2, 4}));
  nn::LayerNorm plain(3, {.bias = false, .dtype = float64});
  CHECK(names_of(plain.named_parameters()) == Names{"weight"});
  CHECK(plain(wave({2, 3})).sum({1}).to_vector<double>()[1] == Approx(0).margin(1e-12));
  CHECK(norm.str() == "LayerNorm([4])");
  CHECK(rms.str() == "RMSNorm([4])");
  Generator random(1);
  norm.reset(random);
  CHECK(norm.weight.to_vector<double>() == std::vector<double>{1, 1, 1, 1});
  CHECK(norm.bias.to_vector<double>() == std::vector<double>{0, 0, 0, 0});
  CHECK_THAT(text_of([] { nn::LayerNorm(0); }), Contains("[layer_norm] sizes must be at least 1, got [0]"));
  CHECK_THAT(text_of([] { nn::RMSNorm(2, {.eps = -1}); }), Contains("[rms_norm] eps"));
}

TEST_CASE("embedding picks rows, and passes gradients to them") {
  auto table = filled(nn::Embedding(5, 3, float64));
  const Tensor ids = tensor({{4, 0}, {4, 1}});
  CHECK(bit_equal(table(ids), ops::embedding(ids, table.weight)));
  CHECK(table(ids).shape() == Shape{2, 2, 3});
  autograd::backward(table(ids).sum());
  CHECK(table.weight.grad().sum({1}).to_vector<double>() == std::vector<double>{3, 3, 0, 0, 6});
  CHECK(table.str() == "Embedding(5, 3)");
  nn::Embedding large(100, 50);
  CHECK(ops::mean(ops::square(large.weight)).item() == Approx(1).epsilon(0.1));
  CHECK_THAT(text_of([] { nn::Embedding(0, 3); }),
             Contains("[embedding] sizes must be at least 1, got 0 x 3"));
  CHECK_THAT(nn::summary(table, zeros({2, 7}, int64)), Contains("[2, 7, 3]"));
}

TEST_CASE("multihead attention has PyTorch's values and names") {
  auto open = filled(nn::MultiheadAttention(4, 2, {.dtype = float64}));
  auto causal = filled(nn::MultiheadAttention(4, 2, {.causal = true, .dtype = float64}));
  CHECK(names_of(open.named_parameters()) ==
        Names{"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"});
  const Tensor x = wave({2, 3, 4});
  check_values(open(x), {0.0331330261758922, -0.859296330648372, 0.0798726990615005,  -0.326331826451266,
                         0.320278996318418,  -1.03512837736469,  0.0225897202780067,  -0.0756144724031522,
                         0.0698853220619349, -0.764109776309317, -0.0813157648959633, -0.21079875834512,
                         0.329723078028865,  -1.03535754183811,  0.013445222359915,   -0.0634308224694126,
                         0.0579374048732183, -0.749048066243899, -0.0890578291143617, -0.215739366633192,
                         0.254537088931111,  -0.932009514219161, -0.0464743465062556, -0.0884467621798212});
  check_values(
      open(x, x, x),
      {0.0331330261758922,  -0.859296330648372, 0.0798726990615005,  -0.326331826451266,  0.320278996318418,
       -1.03512837736469,   0.0225897202780067, -0.0756144724031522, 0.0698853220619349,  -0.764109776309317,
       -0.0813157648959633, -0.21079875834512,  0.329723078028865,   -1.03535754183811,   0.013445222359915,
       -0.0634308224694126, 0.0579374048732183, -0.749048066243899,  -0.0890578291143617, -0.215739366633192,
       0.254537088931111,   -0.932009514219161, -0.0464743465062556, -0.0884467621798212});
  check_values(causal(x), {0.390254198322777,  -1.10123684210677,  0.0390372708011428,  -0.0310076806176317,
                           0.254838985315326,  -1.01684533056628,  0.0641285374616326,  -0.148200684942158,
                           0.0698853220619349, -0.764109776309317, -0.0813157648959633, -0.21079875834512,
                           0.0159063131148146, -0.728414515630702, -0.0740007148241236, -0.256056890655247,
                           0.0198144151899222, -0.643606176756482, -0.188777676301578,  -0.190818772145774,
                           0.254537088931111,  -0.932009514219161, -0.0464743465062556, -0.0884467621798212});
  check_values(
      causal(x, x, x),
      {0.390254198322777,   -1.10123684210677,  0.0390372708011428,  -0.0310076806176317, 0.254838985315326,
       -1.01684533056628,   0.0641285374616326, -0.148200684942158,  0.0698853220619349,  -0.764109776309317,
       -0.0813157648959633, -0.21079875834512,  0.0159063131148146,  -0.728414515630702,  -0.0740007148241236,
       -0.256056890655247,  0.0198144151899222, -0.643606176756482,  -0.188777676301578,  -0.190818772145774,
       0.254537088931111,   -0.932009514219161, -0.0464743465062556, -0.0884467621798212});
  check_values(open(x, wave({2, 2, 4}, 1), wave({2, 2, 4}, 2)),
               {-0.0203416944161316, -0.471540485701334, -0.373560849350897,  -0.121319778587673,
                0.150560962892061,   -0.853308825135494, -0.0453826272214236, -0.168574641956096,
                -0.0178582481639878, -0.502065691125228, -0.336139084001282,  -0.13971556956824,
                -0.0758831518123585, -0.673939845250274, -0.0534252914825802, -0.337429549463211,
                0.124108450492499,   -0.737325206850383, -0.170554019255349,  -0.120923296406021,
                -0.278562742223374,  -0.464560872796853, -0.124464160445878,  -0.453940314854181});
  check_gradients(causal, x);
  check_gradients(open, x, [&](const Tensor& at) { return open(at, wave({2, 2, 4}, 1), at.slice(1, 0, 2)); });
  nn::MultiheadAttention bare(4, 1, {.bias = false});
  CHECK(names_of(bare.named_parameters()) == Names{"in_proj_weight", "out_proj.weight"});
  CHECK(bare(zeros({1, 2, 4}), zeros({1, 5, 4}), zeros({1, 5, 4})).shape() == Shape{1, 2, 4});
  CHECK(open.str() == "MultiheadAttention(4, 2 heads)");
}

TEST_CASE("attention starts by Glorot's rule, without biases") {
  nn::MultiheadAttention a(64, 4);
  const double bound = std::sqrt(6.0 / (64 + 3 * 64));
  double most = 0;
  for (const double w : a.in_proj_weight.to_vector<double>()) most = std::max(most, std::abs(w));
  CHECK(most <= bound * (1 + 1e-6));
  CHECK(most > bound * 0.99);
  CHECK(ops::sum(ops::square(a.in_proj_bias)).item() == 0);
  CHECK(ops::sum(ops::square(a.out_proj.bias)).item() == 0);
}

TEST_CASE("attention refuses shapes that do not fit") {
  CHECK_THAT(text_of([] { nn::MultiheadAttention(6, 4); }), Contains("4 heads do not divide a width of 6"));
  CHECK_THAT(text_of([] { nn::TransformerBlock(6, 4); }), Contains("[transformer_block] 4 heads"));
  nn::MultiheadAttention a(4, 2);
  CHECK_THAT(text_of([&] {
               a(zeros({2, 4}));
             }),
             Contains("the input is float32 [2, 4], expected [batch, time, 4]"));
  CHECK_THAT(text_of([&] {
               a(zeros({1, 2, 4}), zeros({1, 2, 3}), zeros({1, 2, 4}));
             }),
             Contains("the key is float32 [1, 2, 3]"));
  nn::TransformerBlock b(4, 2);
  CHECK_THAT(text_of([&] { b(Tensor()); }), Contains("[transformer_block] the input is undefined"));
}

TEST_CASE("a transformer block has the values of its formula in PyTorch") {
  auto causal = filled(nn::TransformerBlock(4, 2, {.dtype = float64}));
  auto open = filled(nn::TransformerBlock(4, 2, {.causal = false, .dtype = float64}));
  CHECK(names_of(causal.named_parameters()) == Names{"norm1.weight", "norm1.bias", "qkv.weight", "qkv.bias",
                                                     "proj.weight", "proj.bias", "norm2.weight", "norm2.bias",
                                                     "up.weight", "up.bias", "down.weight", "down.bias"});
  check_values(
      causal(wave({2, 3, 4})),
      {2.02155011760729,   -0.989049553740943, 0.567904358914514,  -0.350474835466321, 0.140933049454606,
       -2.7242030859323,   -0.103495079273615, 0.387993800641147,  1.83075217304892,   -0.781559763402991,
       1.16063084270552,   0.319276168637423,  0.634776113269066,  -2.7128194217572,   -0.643787276776123,
       -0.162392157927081, 1.27498286936644,   -0.989943215620938, 1.38061919509311,   0.937361904579898,
       1.20254673314749,   -2.29549379685,     -0.584100493582617, -0.719862074277345});
  check_values(
      open(wave({2, 3, 4})),
      {2.04254289730313,   -1.00727188996871,   0.571096782357444,  -0.336405129315383, 0.116136974006772,
       -2.72220595215578,  -0.0812637904175413, 0.356726431967044,  1.83075217304892,   -0.781559763402991,
       1.16063084270552,   0.319276168637423,   0.551449643351374,  -2.71733116824854,  -0.553417820915167,
       -0.277528322283729, 1.27071235727038,    -0.981199378141912, 1.37338041852952,   0.938102326341074,
       1.20254673314749,   -2.29549379685,      -0.584100493582617, -0.719862074277345});
  check_gradients(causal, wave({2, 3, 4}));
}

TEST_CASE("a transformer block drops what its halves add, while training only") {
  nn::TransformerBlock a(4, 2, {.dropout = 0.5}), b(4, 2);
  b.load_state_dict(a.state_dict());
  const Tensor x = ops::to(wave({2, 3, 4}), float32);
  CHECK_FALSE(bit_equal(a(x), b(x)));
  a.eval();
  CHECK(bit_equal(a(x), b(x)));
}

TEST_CASE("embedding bags have PyTorch's values") {
  auto mean = filled(nn::EmbeddingBag(4, 2, "mean", float64)),
       sum = filled(nn::EmbeddingBag(4, 2, "sum", float64));
  const Tensor ids = tensor({0, 2, 3, 1, 1}), offsets = tensor({0, 3});
  check_values(mean(ids, offsets),
               {0.0899222181439245, 0.26987336254169, 0.0705600040299336, -0.378401247653964});
  check_values(sum(ids, offsets),
               {0.269766654431774, 0.809620087625069, 0.141120008059867, -0.756802495307928});
  check_values(mean(tensor({{0, 2}, {3, 1}})),
               {-0.0293633224638105, 0.157470482156689, 0.199526651694664, 0.0581389378288634});
  check_gradients(sum, tensor({1}, float64), [&](const Tensor& x) { return ops::mul(sum(ids, offsets), x); });
  CHECK_THAT(text_of([&] { mean(ids); }), Contains("expected ids [bags, n]"));
  CHECK_THAT(text_of([] { nn::EmbeddingBag(4, 2, "max"); }), Contains("got \"max\""));
}
