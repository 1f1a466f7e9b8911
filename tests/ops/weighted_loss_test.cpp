// Losses with weights of classes and of elements: values and gradients are those of PyTorch 2.15.
#include <catch2/catch.hpp>
#include <functional>

#include "autograd/autograd.h"
#include "core/base/error.h"
#include "ops/function_catalog.h"
#include "ops/ops.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"

using namespace troupe;

namespace {

using Catch::Contains;
using testing::difference, testing::invalid_text;
using Values = std::vector<double>;
using Loss = std::function<Tensor(const Tensor&, const std::string&)>;

struct Expected {
  const char* reduction;
  Values loss, gradient;  // of the sum of (1, 2, ...) times the losses
};

void check(const Tensor& scores, const Loss& loss, const std::vector<Expected>& all) {
  for (const DType t : {float64, float32, float16})
    for (const auto& [reduction, values, gradient] : all) {
      INFO(name(t) << " " << reduction);
      const double near = t == float64 ? 1e-11 : t == float32 ? 1e-5 : 6e-3;
      const Tensor x = scores.detach().to(t).requires_grad_();
      const Tensor y = loss(x, reduction);
      CHECK(y.dtype() == t);
      CHECK(difference(y.flatten(), tensor(values, float64), near, near) == "");
      const Tensor counts = arange(1, y.numel() + 1).to(t).reshape(y.shape());
      const Tensor g = autograd::grad({(y * counts).sum()}, {x})[0];
      CHECK(difference(g.flatten(), tensor(gradient, float64), near, near) == "");
      if (t != float64) continue;
      const auto twice = autograd::gradgradcheck(
          [&](const Tensors& in) { return loss(in[0], reduction).sum(); }, {x.detach().requires_grad_()});
      INFO(twice.text);
      CHECK(twice.ok);
    }
}

Tensor like(const Tensor& x, Values values) { return tensor(values, float64).to(x.dtype()); }

const Tensor kTarget = tensor({2, 0, -100, 1});
const Values kClasses{0.5, 2, 3};

Tensor scores() {
  return tensor({{0.5, -1., 2.}, {1.5, 0.25, -0.75}, {0., 1., -2.}, {3., -1., 0.5}}, float64);
}
Tensor odds() { return tensor({{0.5, -1., 2.}, {1.5, 0.25, -40.}}, float64); }

TEST_CASE("weights of classes: a row counts as much as its class, and the mean divides by what counts") {
  check(scores(),
        [](const Tensor& x, const std::string& r) {
          return ops::cross_entropy(x, kTarget, like(x, kClasses), r);
        },
        {{"mean",
          {1.651021609728},
          {0.095612941167, 0.021334130875, -0.116947072042, -0.025596332623, 0.018712418545, 0.006883914077,
           0.0, 0.0, 0.0, 0.330458154276, -0.357583811415, 0.027125657139}},
         {"sum",
          {9.080618853504},
          {0.52587117642, 0.117337719812, -0.643208896232, -0.140779829424, 0.102918301999, 0.037861527426,
           0.0, 0.0, 0.0, 1.817519848517, -1.966710962781, 0.149191114264}},
         {"none",
          {0.723933889971, 0.165336304704, 0.0, 8.191348658829},
          {0.52587117642, 0.117337719812, -0.643208896232, -0.281559658849, 0.205836603998, 0.075723054851,
           0.0, 0.0, 0.0, 7.270079394068, -7.866843851126, 0.596764457058}}});
  check(scores(),
        [](const Tensor& x, const std::string& r) {
          return ops::cross_entropy(x, kTarget, like(x, kClasses), r, -100, 0.1);
        },
        {{"mean",
          {1.69908381418},
          {0.088864357092, 0.008383258109, -0.0972476152, -0.002118991019, 0.011581184703, -0.009462193684,
           0.0, 0.0, 0.0, 0.324674033293, -0.333391825108, 0.008717791814}},
         {"sum",
          {9.344960977991},
          {0.488753964004, 0.046107919597, -0.534861883601, -0.011654450604, 0.063696515865, -0.052042065261,
           0.0, 0.0, 0.0, 1.785707183113, -1.833655038092, 0.047947854979}},
         {"none",
          {0.920780905361, 0.517759319291, 0.0, 7.906420753339},
          {0.488753964004, 0.046107919597, -0.534861883601, -0.023308901209, 0.12739303173, -0.104084130522,
           0.0, 0.0, 0.0, 7.142828732451, -7.334620152366, 0.191791419916}}});
  const Values soft{0.2, 0.3, 0.5, 1, 0, 0, 0.1, 0.6, 0.3, 0.25, 0.25, 0.5};
  check(
      scores(),
      [&](const Tensor& x, const std::string& r) {
        return ops::cross_entropy(x, like(x, soft).reshape({4, 3}), like(x, kClasses), r, -100, 0.1);
      },
      {{"mean",
        {3.110742771411},
        {0.068136220416, -0.130513283289, 0.062377062874, -0.002913612651, 0.015924128966, -0.013010516315,
         0.12200833379, 0.08689321485, -0.208901548639, 0.443860668648, -0.120445632437, -0.323415036211}},
       {"sum",
        {12.442971085644},
        {0.272544881663, -0.522053133158, 0.249508251495, -0.011654450604, 0.063696515865, -0.052042065261,
         0.488033335159, 0.347572859399, -0.835606194558, 1.775442674592, -0.481782529748, -1.293660144844}},
       {"none",
        {2.502036771768, 0.517759319291, 3.530990879187, 5.892184115398},
        {0.272544881663, -0.522053133158, 0.249508251495, -0.023308901209, 0.12739303173, -0.104084130522,
         1.464100005476, 1.042718578197, -2.506818583673, 7.101770698367, -1.927130118992,
         -5.174640579375}}});
  check(scores(),
        [](const Tensor& x, const std::string& r) { return ops::nll_loss(x, kTarget, like(x, kClasses), r); },
        {{"mean",
          {-0.863636363636},
          {0.0, 0.0, -0.545454545455, -0.090909090909, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -0.363636363636, 0.0}},
         {"sum", {-4.75}, {0.0, 0.0, -3.0, -0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -2.0, 0.0}},
         {"none", {-6.0, -0.75, 0.0, 2.0}, {0.0, 0.0, -3.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -8.0, 0.0}}});
  check(
      (arange(12).to(float64) / 10).reshape({2, 3, 2}),
      [](const Tensor& x, const std::string& r) {
        return ops::cross_entropy(x, tensor({{0, 2}, {1, 1}}), like(x, kClasses), r, -100, 0.2);
      },
      {{"mean",
        {1.035848537368},
        {-0.030248566751, 0.094900099697, 0.015846476501, 0.103561922444, 0.01440209025, -0.198462022141,
         0.066173966451, 0.066173966451, -0.144857589266, -0.144857589266, 0.078683622815, 0.078683622815}},
       {"sum",
        {7.768864030261},
        {-0.22686425063, 0.711750747725, 0.118848573755, 0.776714418333, 0.108015676876, -1.488465166058,
         0.496304748383, 0.496304748383, -1.086431919498, -1.086431919498, 0.590127171116, 0.590127171116}},
       {"none",
        {0.899124431679, 2.562927296927, 2.153406150828, 2.153406150828},
        {-0.22686425063, 1.42350149545, 0.118848573755, 1.553428836665, 0.108015676876, -2.976930332115,
         1.488914245149, 1.985218993532, -3.259295758495, -4.345727677994, 1.770381513347, 2.360508684462}}});
  const Tensor x = scores(), w = tensor(kClasses, float64);
  CHECK(std::isnan(ops::cross_entropy(x, full({4}, -100), w).item()));
  CHECK(ops::cross_entropy(x[0], tensor(2), w).item() == Approx(ops::cross_entropy(x[0], tensor(2)).item()));
  CHECK(ops::cross_entropy(x[0], tensor({2}), w).item() ==
        Approx(ops::cross_entropy(x[0], tensor(2)).item()));
  CHECK(bit_equal(ops::cross_entropy(x, kTarget, Tensor(), "sum"), ops::cross_entropy(x, kTarget, "sum")));
  CHECK(bit_equal(ops::nll_loss(x, kTarget, Tensor()), ops::nll_loss(x, kTarget)));
}

TEST_CASE("weights of elements and of targets of 1") {
  const auto target = [](const Tensor& x) { return like(x, {1, 0, 0.25, 0.5, 1, 1}).reshape({2, 3}); };
  check(
      odds(),
      [&](const Tensor& x, const std::string& r) {
        return ops::binary_cross_entropy_with_logits(x, target(x), like(x, {2, 0.5}).reshape({2, 1}),
                                                     Tensor(), r);
      },
      {{"mean",
        {4.265368285736},
        {-0.125846889599, 0.089647140457, 0.210265692659, 0.026464539683, -0.036485291593, -0.083333333333}},
       {"sum",
        {25.592209714413},
        {-0.755081337596, 0.53788284274, 1.261594155956, 0.158787238097, -0.218911749557, -0.5}},
       {"none",
        {0.94815396836, 0.626523375036, 3.253856022086, 0.475706638991, 0.287969709939, 20.0},
        {-0.755081337596, 1.07576568548, 3.784782467867, 0.635148952387, -1.094558747786, -3.0}}});
  check(
      odds(),
      [&](const Tensor& x, const std::string& r) {
        return ops::binary_cross_entropy_with_logits(x, target(x), Tensor(), like(x, {2, 3, 0.5}), r);
      },
      {{"mean",
        {4.275402640359},
        {-0.125846889599, 0.044823570228, 0.107616240538, 0.037726952382, -0.218911749557, -0.083333333333}},
       {"sum",
        {25.652415842152},
        {-0.755081337596, 0.26894142137, 0.645697443231, 0.22636171429, -1.313470497343, -0.5}},
       {"none",
        {0.94815396836, 0.313261687518, 1.611062009663, 1.052119916974, 1.727818259637, 20.0},
        {-0.755081337596, 0.53788284274, 1.937092329692, 0.905446857162, -6.567352486713, -3.0}}});
  check(odds(),
        [&](const Tensor& x, const std::string& r) {
          return ops::binary_cross_entropy_with_logits(x, target(x), like(x, {1, 0, 2}),
                                                       like(x, {4}).reshape({}), r);
        },
        {{"mean",
          {54.432348195055},
          {-0.251693779199, 0.0, 0.180464962154, 0.007322698414, -0.0, -1.333333333333}},
         {"sum", {326.594089170328}, {-1.510162675193, 0.0, 1.082789772923, 0.043936190484, -0.0, -8.0}},
         {"none",
          {1.89630793672, 0.0, 3.44424803865, 1.253533194957, 0.0, 320.0},
          {-1.510162675193, 0.0, 3.248369318768, 0.175744761936, -0.0, -48.0}}});
  const Tensor x = odds();
  CHECK(bit_equal(ops::binary_cross_entropy_with_logits(x, target(x), Tensor(), Tensor(), "sum"),
                  ops::binary_cross_entropy_with_logits(x, target(x), "sum")));
}

TEST_CASE("weights that do not fit, or are to be learned, are refused") {
  const Tensor x = scores(), w = tensor(kClasses, float64), y = odds(), t = ops::sigmoid(y);
  CHECK(
      invalid_text([&] { ops::cross_entropy(x, kTarget, ones({2}, float64)); }) ==
      "[cross_entropy] weight must be float64 [3], one number for each class of float64 [4, 3], got float64 "
      "[2]");
  CHECK_THAT(invalid_text([&] { ops::nll_loss(x, kTarget, ones({3})); }),
             Contains("[nll_loss] weight must be float64 [3]") && Contains("got float32 [3]"));
  CHECK_THAT(invalid_text([&] { ops::cross_entropy(x, kTarget, w.clone().requires_grad_()); }),
             Contains("[cross_entropy] weight (float64 [3]) has no gradient: detach() it"));
  CHECK_THAT(invalid_text([&] { ops::cross_entropy(x, kTarget + 1, w); }), Contains("out of range for 3"));
  CHECK_THAT(invalid_text([&] { ops::cross_entropy(x, kTarget, w, "most"); }), Contains("\"most\""));
  CHECK_THAT(invalid_text([&] { ops::nll_loss(x, kTarget[0], w); }),
             Contains("[nll_loss] target must be [4]"));
  CHECK_THAT(invalid_text([&] {
               ops::binary_cross_entropy_with_logits(y, t, ones({2, 2, 3}, float64));
             }),
             Contains("weight must be float64 and broadcast to [2, 3], got float64 [2, 2, 3]"));
  CHECK_THAT(invalid_text([&] {
               ops::binary_cross_entropy_with_logits(y, t, Tensor(), ones({3}, float64).requires_grad_());
             }),
             Contains("pos_weight (float64 [3]) has no gradient"));
}

}  // namespace
