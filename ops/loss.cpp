#include "ops/loss.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/gradient_rules.h"
#include "ops/index.h"
#include "ops/logic.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/unary.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

// target has the shape of x without the class dimension.
void check_classes(const Call& c, const Shape& x, const Tensor& target) {
  require_int64(c, target, "target");
  if (x.empty()) reject(c, "needs scores [N, C] or [C], got a 0-d tensor");
  Shape expected = x;
  expected.erase(x.rank() > 1 ? 1 : 0);
  if (target.shape() != expected)
    reject(c, fmt::format("target must be {} for scores {}, got {}", expected.str(), x.str(),
                          target.shape().str()));
}

Specs nll_spec(const Call& c) {
  require_reduction(c);
  require_floating(c, c.in[0]);
  check_classes(c, c.in[0].shape(), c.in[1]);
  return {{c.attrs.text("reduction") == "none" ? c.in[1].shape() : Shape{}, c.in[0].dtype()}};
}

Specs nll_grad_spec(const Call& c) {
  require_reduction(c);
  require_floating(c, c.in[0]);
  const Shape x(c.attrs.ints("shape"));
  check_classes(c, x, c.in[1]);
  if (c.in[0].shape() != (c.attrs.text("reduction") == "none" ? c.in[1].shape() : Shape{}))
    reject(c, "the gradient's shape is " + c.in[0].shape().str());
  return {{x, c.in[0].dtype()}};
}

void check_smoothing(const Call& c) {
  const double smoothing = c.attrs.number("label_smoothing");
  if (!(smoothing >= 0 && smoothing <= 1))
    reject(c, fmt::format("label_smoothing must be in [0, 1], got {}", smoothing));
}

Specs cross_entropy_spec(const Call& c) {
  check_smoothing(c);
  return nll_spec(c);
}

// Inputs: gradient of the loss, scores, target.
Specs cross_entropy_grad_spec(const Call& c) {
  check_smoothing(c);
  require_reduction(c);
  require_floating(c, c.in[1]);
  check_classes(c, c.in[1].shape(), c.in[2]);
  if (c.in[0].dtype() != c.in[1].dtype())
    reject(c, fmt::format("the gradient is {}, expected {}", name(c.in[0].dtype()), name(c.in[1].dtype())));
  if (c.in[0].shape() != (c.attrs.text("reduction") == "none" ? c.in[2].shape() : Shape{}))
    reject(c, "the gradient's shape is " + c.in[0].shape().str());
  return {{c.in[1].shape(), c.in[1].dtype()}};
}

// (softmax(x) - wanted distribution) times each row's gradient, made of operators that have gradients
// themselves.
Tensors cross_entropy_recorded(const Backward& b) {
  const Tensor &x = b.in[0], &target = b.in[1];
  const int64_t dim = x.dim() > 1 ? 1 : 0, classes = x.size(dim);
  const double smoothing = b.attrs.number("label_smoothing");
  const Tensor ignored =
      eq(target, tensor(static_cast<double>(b.attrs.integer("ignore_index")), {int64, target.device()}));
  Tensor wanted =
      to(one_hot(where(ignored, tensor(0, {int64, target.device()}), target), classes), x.dtype());
  std::vector<int64_t> order;  // classes back to their dimension
  for (int64_t i = 0; i < x.dim(); ++i) order.push_back(i < dim ? i : i == dim ? x.dim() - 1 : i - 1);
  wanted = add(mul(permute(wanted, order), 1 - smoothing), smoothing / static_cast<double>(classes));
  Tensor g = b.grads[0];
  if (b.attrs.text("reduction") == "mean") g = div(g, to(sum(logical_not(ignored)), g.dtype()));
  const Tensor each = where(ignored, tensor(0, x.options()), g);
  return {mul(sub(softmax(x, dim), wanted), unsqueeze(each, dim))};
}

Tensor reduced(const Call& c, const Tensor& each) {
  const std::string& r = c.attrs.text("reduction");
  if (r == "none") return each;
  if (r == "batchmean") return mul(sum(each), 1 / static_cast<double>(each.dim() ? each.shape()[0] : 1));
  return r == "mean" ? mean(each) : sum(each);
}

void check_pair(const Call& c, const char* more = nullptr) {
  require_reduction(c, more);
  require_floating(c, c.in[0]);
  require_same_dtype(c);
  broadcast(c.in[0].shape(), c.in[1].shape(), c.name());
}

// 0.5 d^2 / width up to |d| = width, then a line; times `scale`. A NaN counts as near, and no infinite d is
// squared: the gradient of the branch that is not used would be NaN.
Tensor rounded_distance(const Call& c, double width, double scale) {
  const Tensor d = sub(c.in[0], c.in[1]), a = abs(d);
  const Tensor line = mul(add(a, -0.5 * width), scale);
  if (width == 0) return line;
  const Tensor far = ge(a, tensor(width, d.options()));
  const Tensor curve = mul(square(where(far, 0, d)), 0.5 * scale / width);
  return where(far, line, curve);
}

std::vector<Sample> classes() {
  const Tensor target = tensor({0, 3, 1});
  std::vector<Sample> all;
  for (const char* r : {"mean", "sum", "none"})
    all.push_back({{sample({3, 4}), target}, {{"reduction", r}, {"ignore_index", 3}}});
  all.push_back({{sample({2, 3, 2}), tensor({{0, 2}, {1, 1}})}});
  all.push_back({{sample({4}), tensor(2)}});
  return all;
}

std::vector<Sample> pairs() {
  std::vector<Sample> all;
  for (const char* r : {"mean", "sum", "none"})
    all.push_back({{sample({3, 4}), sample({3, 4}, -2, 2, 1)}, {{"reduction", r}}});
  return all;
}

std::vector<Sample> probabilities() {
  std::vector<Sample> all;
  for (const char* r : {"mean", "none"})
    all.push_back({{sample({3, 4}), sample({3, 4}, 0.05, 0.95, 1)}, {{"reduction", r}}});
  return all;
}

Attrs reduction_and(std::initializer_list<Attr> more = {}) {
  Attrs all{{"reduction", "mean"}};
  for (const Attr& a : more) all.add(a);
  return all;
}

std::vector<Sample> smoothed_classes() {
  std::vector<Sample> all = classes();
  for (const Sample& s : classes()) {
    all.push_back(s);
    all.back().attrs.add({"label_smoothing", 0.1});
  }
  return all;
}

const Attrs kCrossEntropyAttrs = reduction_and({{"ignore_index", -100}, {"label_smoothing", 0.0}});

}  // namespace

const Op kNllLoss{.name = "nll_loss",
                  .inputs = "input target",
                  .text = "Loss of log-probabilities for classes.",
                  .internal = true,
                  .attrs = reduction_and({{"ignore_index", -100}}),
                  .shape = nll_spec,
                  .saves_inputs = 0b10,
                  .gradient = [](const Backward& b) -> Tensors {
                    Attrs attrs = b.attrs;
                    attrs.add({"shape", to_list(b.shape(0))});
                    return {apply1(kNllLossGrad, {b.grads[0], b.in[1]}, std::move(attrs))};
                  },
                  .samples = classes};

// The transpose of nll_loss, which is linear in the log-probabilities.
const Op kNllLossGrad{
    .name = "nll_loss_grad",
    .inputs = "grad target",
    .text = "Gradient of nll_loss.",
    .internal = true,
    .attrs = reduction_and({{"ignore_index", -100}, {"shape", std::vector<int64_t>{}}}),
    .shape = nll_grad_spec,
    .saves_inputs = 0b10,
    .gradient = [](const Backward& b) -> Tensors {
      return {nll_loss(b.grads[0], b.in[1], b.attrs.text("reduction"), b.attrs.integer("ignore_index"))};
    },
    .samples = []() -> std::vector<Sample> {
      const Tensor target = tensor({0, 3, 1});
      const std::vector<int64_t> shape{3, 4};
      return {{{sample({}), target}, {{"shape", shape}}},
              {{sample({3}), target}, {{"shape", shape}, {"reduction", "none"}}}};
    }};

const Op kCrossEntropy{.name = "cross_entropy",
                       .inputs = "input target",
                       .text = "Loss of scores for classes.",
                       .internal = true,
                       .attrs = kCrossEntropyAttrs,
                       .shape = cross_entropy_spec,
                       .saves_inputs = 0b11,
                       .gradient = [](const Backward& b) -> Tensors {
                         if (grad_enabled()) return rounded_once(b, cross_entropy_recorded);
                         return {apply1(kCrossEntropyGrad, {b.grads[0], b.in[0], b.in[1]}, b.attrs)};
                       },
                       .samples = smoothed_classes};

const Op kCrossEntropyGrad{.name = "cross_entropy_grad",
                           .inputs = "grad input target",
                           .text = "Gradient of cross_entropy.",
                           .internal = true,
                           .attrs = kCrossEntropyAttrs,
                           .shape = cross_entropy_grad_spec,
                           .samples = []() -> std::vector<Sample> {
                             std::vector<Sample> all = smoothed_classes();
                             for (Sample& s : all) {
                               const Tensor loss = apply(kCrossEntropy, s.inputs, s.attrs)[0];
                               s.inputs.insert(s.inputs.begin(), sample(loss.shape()));
                             }
                             return all;
                           }};

// The target is a distribution over the classes.
const Op kSoftCrossEntropy{
    .name = "soft_cross_entropy",
    .inputs = "input target",
    .text = "Loss of scores for distributions over the classes.",
    .internal = true,
    .attrs = reduction_and({{"label_smoothing", 0.0}}),
    .compose = [](const Call& c) -> Tensors {
      check_smoothing(c);
      require_reduction(c);
      for (const Tensor& t : c.in) require_floating(c, t);
      const Tensor &x = c.in[0], &target = c.in[1];
      if (x.dim() == 0) reject(c, "needs scores [N, C] or [C], got a 0-d tensor");
      require_same_shape(c, x, target);
      const int64_t dim = x.dim() > 1 ? 1 : 0, classes = x.size(dim);
      const double smoothing = c.attrs.number("label_smoothing");
      Tensor wanted = to(target, x.dtype());
      if (smoothing > 0) wanted = add(mul(wanted, 1 - smoothing), smoothing / static_cast<double>(classes));
      const Tensor each = neg(sum(mul(log_softmax(x, dim), wanted), {dim}));
      if (c.attrs.text("reduction") != "mean") return {reduced(c, each)};
      return {div(sum(each), static_cast<double>(x.numel()) / static_cast<double>(classes))};
    },
    .samples = []() -> std::vector<Sample> {
      std::vector<Sample> all = probabilities();
      all.push_back({{sample({4}), sample({4}, 0, 1, 1)}, {{"reduction", "sum"}}});
      all.push_back({{sample({2, 3, 2}), sample({2, 3, 2}, 0, 1, 1)}, {{"label_smoothing", 0.1}}});
      return all;
    }};

const Op kMseLoss{.name = "mse_loss",
                  .inputs = "input target",
                  .text = "The mean (or sum) of squared differences.",
                  .attrs = reduction_and(),
                  .compose = [](const Call& c) -> Tensors {
                    check_pair(c);
                    return {reduced(c, square(sub(c.in[0], c.in[1])))};
                  },
                  .promotes = Promotion::common,
                  .samples = pairs};

const Op kL1Loss{.name = "l1_loss",
                 .inputs = "input target",
                 .text = "The mean (or sum) of absolute differences.",
                 .attrs = reduction_and(),
                 .compose = [](const Call& c) -> Tensors {
                   check_pair(c);
                   return {reduced(c, abs(sub(c.in[0], c.in[1])))};
                 },
                 .promotes = Promotion::common,
                 .samples = pairs};

const Op kSmoothL1Loss{.name = "smooth_l1_loss",
                       .inputs = "input target",
                       .text = "Squared differences below beta (divided by it), absolute ones above.",
                       .attrs = reduction_and({{"beta", 1.0}}),
                       .compose = [](const Call& c) -> Tensors {
                         check_pair(c);
                         const double beta = c.attrs.number("beta");
                         if (!(beta >= 0)) reject(c, fmt::format("beta must be at least 0, got {}", beta));
                         return {reduced(c, rounded_distance(c, beta, 1))};
                       },
                       .promotes = Promotion::common,
                       .samples = pairs};

const Op kHuberLoss{.name = "huber_loss",
                    .inputs = "input target",
                    .text = "Squared differences below delta, absolute ones (times delta) above.",
                    .attrs = reduction_and({{"delta", 1.0}}),
                    .compose = [](const Call& c) -> Tensors {
                      check_pair(c);
                      const double delta = c.attrs.number("delta");
                      if (!(delta > 0)) reject(c, fmt::format("delta must be above 0, got {}", delta));
                      return {reduced(c, rounded_distance(c, delta, delta))};
                    },
                    .samples = pairs};

const Op kBinaryCrossEntropyWithLogits{.name = "binary_cross_entropy_with_logits",
                                       .inputs = "input target",
                                       .text = "Loss of scores for probabilities in [0, 1].",
                                       .internal = true,
                                       .attrs = reduction_and(),
                                       .compose = [](const Call& c) -> Tensors {
                                         check_pair(c);
                                         require_same_shape(c, c.in[0], c.in[1]);
                                         return {reduced(c, sub(softplus(c.in[0]), mul(c.in[0], c.in[1])))};
                                       },
                                       .samples = probabilities};

// target log(target) is 0 at 0.
const Op kKlDiv{.name = "kl_div",
                .inputs = "input target",
                .text =
                    "How far log-probabilities are from the probabilities target; log_target: of which it "
                    "is the logarithm.",
                .attrs = reduction_and({{"log_target", false}}),
                .compose = [](const Call& c) -> Tensors {
                  check_pair(c, "batchmean");
                  const Tensor &x = c.in[0], &t = c.in[1];
                  if (c.attrs.flag("log_target")) return {reduced(c, mul(exp(t), sub(t, x)))};
                  const Tensor safe = where(gt(t, tensor(0, t.options())), t, tensor(1, t.options()));
                  return {reduced(c, mul(t, sub(log(safe), x)))};
                },
                .samples = []() -> std::vector<Sample> {
                  std::vector<Sample> all = probabilities();
                  all.push_back({all[0].inputs, {{"reduction", "batchmean"}}});
                  all.push_back({all[0].inputs, {{"log_target", true}}});
                  return all;
                }};

Tensor cross_entropy(const Tensor& x, const Tensor& target, const std::string& reduction,
                     int64_t ignore_index, double label_smoothing) {
  if (x.defined() && target.defined() && x.dim() == 1 && target.shape() == Shape{1} && reduction != "none" &&
      target.dtype() == int64 && x.size(0) != 1)  // else they have one shape, as with probabilities
    return cross_entropy(x, reshape(target, {}), reduction, ignore_index, label_smoothing);
  if (x.defined() && target.defined() && is_floating(target.dtype()) && target.dim() + 1 == x.dim())
    throw_invalid(
        fmt::format("[cross_entropy] target is {}, which is neither class numbers, int64 (use .to(int64)), "
                    "nor probabilities "
                    "of the shape of the scores, {}",
                    target.summary(), x.shape().str()));
  if (x.defined() && target.defined() && is_floating(target.dtype()))
    return apply1(kSoftCrossEntropy, {x, target},
                  {{"reduction", reduction}, {"label_smoothing", label_smoothing}});
  return apply1(
      kCrossEntropy, {x, target},
      {{"reduction", reduction}, {"ignore_index", ignore_index}, {"label_smoothing", label_smoothing}});
}
Tensor nll_loss(const Tensor& log_p, const Tensor& target, const std::string& reduction,
                int64_t ignore_index) {
  return apply1(kNllLoss, {log_p, target}, {{"reduction", reduction}, {"ignore_index", ignore_index}});
}
Tensor mse_loss(const Tensor& x, const Tensor& target, const std::string& reduction) {
  return apply1(kMseLoss, {x, target}, {{"reduction", reduction}});
}
Tensor l1_loss(const Tensor& x, const Tensor& target, const std::string& reduction) {
  return apply1(kL1Loss, {x, target}, {{"reduction", reduction}});
}
Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, const std::string& reduction, double beta) {
  return apply1(kSmoothL1Loss, {x, target}, {{"reduction", reduction}, {"beta", beta}});
}
Tensor huber_loss(const Tensor& x, const Tensor& target, const std::string& reduction, double delta) {
  return apply1(kHuberLoss, {x, target}, {{"reduction", reduction}, {"delta", delta}});
}
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, const std::string& reduction) {
  return apply1(kBinaryCrossEntropyWithLogits, {x, target}, {{"reduction", reduction}});
}
Tensor kl_div(const Tensor& x, const Tensor& target, const std::string& reduction) {
  return apply1(kKlDiv, {x, target}, {{"reduction", reduction}});
}

}  // namespace troupe::ops
