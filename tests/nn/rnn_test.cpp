// LSTM and GRU beside PyTorch's layers.
#include "core/base/error.h"
#include "ops/ops.h"
#include "tests/nn/reference.h"
#include "tests/support/error_of.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;
using Names = std::vector<std::string>;

namespace {

constexpr nn::RecurrentOptions kTwo{.layers = 2, .dtype = float64};

Tensor half_wave(double start) { return ops::mul(wave({2, 2, 3}, start), 0.5); }

}  // namespace

TEST_CASE("lstm has PyTorch's values and names") {
  auto lstm = filled(nn::LSTM(2, 3, kTwo));
  CHECK(names_of(lstm.named_parameters()) == Names{"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0",
                                                   "weight_ih_l1", "weight_hh_l1", "bias_ih_l1",
                                                   "bias_hh_l1"});
  const Tensor x = wave({4, 2, 2});
  const auto zero = lstm.run(x);
  check_values(zero.output,
               {-0.137030034764297,   0.00123090138402432, 0.1388022789654,     -0.141976326066767,
                -0.00103825959062634, 0.145121878877199,   -0.23122659806438,   -0.001702910479742,
                0.185762483254622,    -0.216634293924192,  -0.0220711157087371, 0.180038495744254,
                -0.270606336457149,   -0.0165293110488986, 0.1871396671479,     -0.254193643524936,
                -0.0404651246768726,  0.186582326274997,   -0.286322727357198,  -0.0375683605913391,
                0.196523747194489,    -0.262512689088642,  -0.0661024698865331, 0.191601050825142});
  check_values(zero.h, {0.0415205174687108, -0.12472926900615, -0.279991571476445, 0.0618303301461166,
                        -0.111426698475288, -0.378495292413386, -0.286322727357198, -0.0375683605913391,
                        0.196523747194489, -0.262512689088642, -0.0661024698865331, 0.191601050825142});
  check_values(zero.c, {0.166227426641886, -0.264156015673222, -0.349016615551257, 0.210964714939467,
                        -0.265776774959866, -0.488765879019662, -0.461273365349121, -0.070354963398542,
                        0.761985936536439, -0.427994219112345, -0.120698542308652, 0.782315803126934});
  const auto given = lstm.run(x, half_wave(3), half_wave(4));
  check_values(given.output,
               {-0.20271817568985,   -0.0770152647572675, 0.0881744984655188,  -0.203054643140894,
                -0.0751708486826594, 0.165145346496103,   -0.279644317822346,  -0.0261101149270171,
                0.177304775982298,   -0.265920660530595,  -0.0496329176324008, 0.191172728999942,
                -0.302537854117679,  -0.0229374175576685, 0.1872363785152,     -0.286058501648642,
                -0.0497161261379159, 0.190698807268436,   -0.31411252574858,   -0.0304848383352374,
                0.199216032950456,   -0.286840475901353,  -0.0639860516472866, 0.194685397572627});
  check_values(given.h, {0.0393256826442999, -0.12110199880841, -0.189617067574614, 0.0687482247946457,
                         -0.107005188581159, -0.312494166393329, -0.31411252574858, -0.0304848383352374,
                         0.199216032950456, -0.286840475901353, -0.0639860516472866, 0.194685397572627});
  check_values(given.c, {0.160387656968223, -0.251945472214092, -0.23267270497951, 0.24117967629643,
                         -0.249545976345692, -0.395947384705746, -0.505763042176534, -0.0581923600650923,
                         0.745442524418609, -0.468500234234024, -0.118293808421728, 0.777751373112815});
  CHECK(bit_equal(lstm(x), zero.output));
  check_gradients(lstm, wave({2, 2, 2}), [&](const Tensor& at) {
    const auto r = lstm.run(at, half_wave(3), half_wave(4));
    return ops::add(ops::add(r.h, r.c), ops::sum(r.output));
  });
  CHECK(lstm.str() == "LSTM(2, 3, 2 layers)");
}

TEST_CASE("gru has PyTorch's values") {
  auto gru = filled(nn::GRU(2, 3, kTwo));
  const Tensor x = wave({4, 2, 2});
  const auto zero = gru.run(x);
  check_values(
      zero.output,
      {-0.130984123580016,  -0.114885030814485, 0.542343217581299,  -0.16136141874271,  -0.0458865507917111,
       0.4705488866983,     -0.24587380658096,  -0.123450953844346, 0.620694025683484,  -0.256779079732407,
       -0.0961679286815809, 0.616430505608362,  -0.273781307001997, -0.197131072450511, 0.709170267236601,
       -0.289609660975981,  -0.171265339834637, 0.700193094002023,  -0.30951386024966,  -0.209200091708862,
       0.699508135720983,   -0.318278353304467, -0.196553320179436, 0.700600993955063});
  check_values(zero.h, {0.00910493369130116, -0.0678075420436638, -0.425487756092925, 0.213483982173318,
                        -0.15219499700169, -0.329235370044916, -0.30951386024966, -0.209200091708862,
                        0.699508135720983, -0.318278353304467, -0.196553320179436, 0.700600993955063});
  const auto given = gru.run(x, half_wave(3));
  check_values(given.output, {0.0703965657248047, -0.139249409273088, 0.474486773074041,  -0.514633072187915,
                              -0.238004709973792, 0.472888647036162,  -0.115091641530489, -0.146518193984776,
                              0.610729442092928,  -0.505436031042212, -0.158967165472778, 0.608055907311247,
                              -0.196625216638475, -0.20526988728692,  0.700821717019046,  -0.456456951699829,
                              -0.18818398359724,  0.694560557337105,  -0.263382784343652, -0.214039483602874,
                              0.696837291667184,  -0.432609054693681, -0.184793448384812, 0.686159191529283});
  check_values(given.h, {-0.0429252997562248, -0.0834373910609791, -0.442332492097376, 0.27387950648606,
                         -0.0902476575774951, -0.217329166450412, -0.263382784343652, -0.214039483602874,
                         0.696837291667184, -0.432609054693681, -0.184793448384812, 0.686159191529283});
  check_gradients(gru, wave({2, 2, 2}), [&](const Tensor& at) {
    const auto r = gru.run(at, half_wave(3));
    return ops::add(r.h, ops::sum(r.output));
  });
}

TEST_CASE("batch first is the same with two dimensions exchanged") {
  auto first = filled(nn::GRU(2, 3, {.batch_first = true, .dtype = float64}));
  auto second = filled(nn::GRU(2, 3, {.dtype = float64}));
  const Tensor x = wave({4, 2, 2});
  const auto a = first.run(x.transpose(0, 1)), b = second.run(x);
  CHECK(bit_equal(a.output.transpose(0, 1).contiguous(), b.output));
  CHECK(bit_equal(a.h, b.h));
}

TEST_CASE("recurrent layers without bias, their bounds and their refusals") {
  nn::LSTM bare(2, 100, {.bias = false});
  CHECK(names_of(bare.named_parameters()) == Names{"weight_ih_l0", "weight_hh_l0"});
  double most = 0;
  for (const double w : bare.cells[0].w_hh.to_vector<double>()) most = std::max(most, std::abs(w));
  CHECK(most <= 0.1 * (1 + 1e-6));
  CHECK(most > 0.099);
  CHECK(bare(zeros({3, 1, 2})).shape() == Shape{3, 1, 100});
  CHECK_THAT(text_of([&] {
               bare(zeros({3, 1, 4}));
             }),
             Contains("[lstm] the input is float32 [3, 1, 4], expected [time, batch, 2]"));
  CHECK_THAT(text_of([&] { bare(zeros({0, 1, 2})); }), Contains("[lstm] needs at least 1 step"));
  CHECK_THAT(text_of([&] {
               bare.run(zeros({3, 1, 2}), zeros({1, 1, 100}));
             }),
             Contains("[lstm] a state is undefined tensor, expected [1, 1, 100]"));
  CHECK_THAT(text_of([] { nn::GRU(2, 3, {.layers = 0}); }), Contains("[gru] sizes must be at least 1"));
}
