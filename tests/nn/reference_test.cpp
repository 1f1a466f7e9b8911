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
  CHECK_THAT(text_of([] { nn::TransformerEncoderLayer(6, 4); }),
             Contains("4 heads do not divide a width of 6"));
  CHECK_THAT(text_of([] { nn::TransformerEncoderLayer(4, 2, {.activation = "tanh"}); }),
             Contains("the activation is \"tanh\", expected \"relu\" or \"gelu\""));
  nn::MultiheadAttention a(4, 2);
  CHECK_THAT(text_of([&] {
               a(zeros({2, 4}));
             }),
             Contains("the input is float32 [2, 4], expected [batch, time, 4]"));
  CHECK_THAT(text_of([&] {
               a(zeros({1, 2, 4}), zeros({1, 2, 3}), zeros({1, 2, 4}));
             }),
             Contains("the key is float32 [1, 2, 3]"));
  nn::TransformerEncoderLayer b(4, 2);
  CHECK_THAT(text_of([&] { b(Tensor()); }),
             Contains("the input is undefined tensor, expected [batch, time, 4]"));
}

TEST_CASE("an encoder layer has PyTorch's values under each of its options") {
  const auto made = [](bool norm_first, const char* activation, bool causal) {
    return filled(nn::TransformerEncoderLayer(4, 2,
                                              {.dim_feedforward = 6,
                                               .dropout = 0,
                                               .activation = activation,
                                               .norm_first = norm_first,
                                               .causal = causal,
                                               .dtype = float64}));
  };
  const Tensor x = wave({2, 3, 4});
  auto plain = made(false, "relu", false), gpt = made(true, "gelu", true);
  check_values(plain(x), {0.389268229733164,  -0.139016765453131, -0.757656209679873, 0.52387863490432,
                          0.418311180440036,  -0.291001137596878, -0.983472788786099, 0.292787669036118,
                          0.284188694351448,  -0.212052183969076, -0.951315126491885, 0.413465826415871,
                          0.671085841147033,  -0.310803305770244, -0.863819015848448, 0.303592020684749,
                          0.0811034337734848, -0.261125196812581, -1.06171183652719,  0.173336700832228,
                          0.811503427076651,  -0.246179855256439, -0.680784027720171, 0.433425619668712});
  check_values(
      made(false, "gelu", true)(x),
      {0.678893417172222,  -0.212689623208126, -0.730763549716501, 0.498798197290799,  0.427352270292908,
       -0.28786073798851,  -0.977397555252554, 0.305498010569004,  0.351737397112701,  -0.20558508647377,
       -0.913118420284041, 0.452934951192776,  0.702034676207175,  -0.304010908303714, -0.838440335238182,
       0.325070497063044,  0.0675623127386327, -0.236389753572647, -1.04355972559634,  0.228890865138658,
       0.820180700530475,  -0.243172434248036, -0.6673779538199,   0.434571811153697});
  check_values(
      made(true, "relu", false)(x),
      {1.5411884324107,   0.570115691444352,  1.16701970661453,   0.155821735458518, -0.324351174575161,
       -1.07309647176501, 0.556543820046375,  0.874657253135928,  1.36642767452224,  0.854860665252827,
       1.7879066272784,   0.842889473902438,  0.0373059875586215, -1.09325455471636, 0.0896816445235132,
       0.1670007093346,   0.829518822005731,  0.722896724007937,  2.09317323204564,  1.44080253277675,
       0.646856042019445, -0.706809364010406, 0.039170771431424,  -0.30114894880912});
  check_values(gpt(x), {1.55535899878837,     0.50752105768328,  1.13423222970462,   0.114173309536032,
                        -0.369995958311726,   -1.09676160772288, 0.526178539924068,  0.816685762124518,
                        1.34101133644242,     0.814104603918285, 1.73505744716956,   0.782157110408302,
                        -0.00959207265138445, -1.13030587984886, 0.101488421098969,  0.0935943870710697,
                        0.781696907564894,    0.699844903640715, 2.01713945908721,   1.37926181004596,
                        0.628406956686864,    -0.73472396051132, 0.0040143245159816, -0.340746703733023});
  check_gradients(plain, x);
  check_gradients(gpt, x);
  nn::TransformerEncoderLayer bare(4, 2, {.dim_feedforward = 6, .bias = false});
  CHECK(names_of(bare.named_parameters()) == Names{"self_attn.in_proj_weight", "self_attn.out_proj.weight",
                                                   "linear1.weight", "linear2.weight", "norm1.weight",
                                                   "norm2.weight"});
  CHECK(bare(zeros({1, 2, 4})).shape() == Shape{1, 2, 4});
  CHECK(bare.str() == "TransformerEncoderLayer(4, 2 heads)");
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
  CHECK_THAT(text_of([] { nn::EmbeddingBag(4, 2, "min"); }), Contains("got \"min\""));
  auto padded = filled(nn::EmbeddingBag(
      4, 2, {.mode = "max", .include_last_offset = true, .padding_idx = -2, .dtype = float64}));
  const Tensor table = padded.weight.detach(), largest = padded(ids, tensor({0, 3, 5}));
  CHECK(bit_equal(largest.detach(), ops::stack({ops::maximum(table[0], table[3]), table[1]})));
}
