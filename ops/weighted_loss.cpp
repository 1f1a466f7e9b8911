// Losses with weights, of classes or of elements: the losses without, one by one, times what each counts.
#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/dispatch/cast_call.h"
#include "ops/dispatch/check.h"
#include "ops/dispatch/promote.h"
#include "ops/gradient_rules.h"
#include "ops/index.h"
#include "ops/logic.h"
#include "ops/loss.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/unary.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

int64_t classes_dim(const Tensor& x) { return x.dim() > 1 ? 1 : 0; }

// As in PyTorch: what examples count is not learned.
void refuse_gradient(const char* op, const char* what, const Tensor& weight) {
  if (grad_enabled() && weight.requires_grad())
    throw_invalid(fmt::format("[{}] {} ({}) has no gradient: detach() it", op, what, weight.summary()));
}

void check_class_weights(const char* op, const Tensor& x, const Tensor& weight) {
  if (!x.defined()) throw_invalid(fmt::format("[{}] input 0 is an undefined tensor", op));
  if (x.dim() == 0) throw_invalid(fmt::format("[{}] needs scores [N, C] or [C], got a 0-d tensor", op));
  const int64_t classes = x.size(classes_dim(x));
  if (weight.shape() != Shape{classes} || weight.dtype() != x.dtype() || weight.device() != x.device())
    throw_invalid(fmt::format("[{}] weight must be {} [{}], one number for each class of {}, got {}", op,
                              name(x.dtype()), classes, x.summary(), weight.summary()));
  refuse_gradient(op, "weight", weight);
}

// One number for each class, beside scores.
Tensor beside(const Tensor& weight, const Tensor& x) {
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[static_cast<size_t>(classes_dim(x))] = weight.numel();
  return reshape(weight, shape);
}

Tensor ignored_rows(const Tensor& target, int64_t ignore_index) { return eq(target, Scalar(ignore_index)); }

// The weight of each row's class, 0 of an ignored one. The targets have been checked.
Tensor weights_of_rows(const Tensor& weight, const Tensor& target, const Tensor& ignored) {
  const Tensor classes = where(ignored, tensor(0, {int64, target.device()}), target);
  const Tensor picked = index_select(weight, 0, reshape(classes, {target.numel()}));
  return where(ignored, tensor(0, weight.options()), reshape(picked, to_list(target.shape())));
}

// `counts`: what the elements count in the mean; undefined: 1.
Tensor reduced(const Tensor& each, const std::string& reduction, const Tensor& counts) {
  if (reduction == "none") return each;
  if (reduction == "sum") return sum(each);
  return counts.defined() ? div(sum(each), sum(counts)) : mean(each);
}

Tensor weighted_nll(const Tensor& log_p, const Tensor& target, const Tensor& weight,
                    const std::string& reduction, int64_t ignore_index) {
  const Tensor each = nll_loss(log_p, target, "none", ignore_index);
  const Tensor counts = weights_of_rows(weight, target, ignored_rows(target, ignore_index));
  return reduced(mul(each, counts), reduction, counts);
}

// What smoothing spreads over all classes: PyTorch's mean of it divides by the weights of the targets, too.
Tensor spread_loss(const Tensor& log_p, const Tensor& target, const Tensor& weight,
                   const std::string& reduction, int64_t ignore_index) {
  const Tensor ignored = ignored_rows(target, ignore_index);
  const Tensor each = where(ignored, tensor(0, log_p.options()),
                            neg(sum(mul(log_p, beside(weight, log_p)), {classes_dim(log_p)})));
  return reduced(each, reduction, weights_of_rows(weight, target, ignored));
}

void check_reduction(const char* op, const std::string& reduction) {
  if (reduction != "mean" && reduction != "sum" && reduction != "none")
    throw_invalid(
        fmt::format("[{}] reduction must be \"mean\", \"sum\" or \"none\", got \"{}\"", op, reduction));
}

}  // namespace

Tensor nll_loss(const Tensor& log_p, const Tensor& target, const Tensor& weight, const std::string& reduction,
                int64_t ignore_index) {
  if (!weight.defined()) return nll_loss(log_p, target, reduction, ignore_index);
  if (const auto y = under_autocast("nll_loss", {&log_p, &weight}, [&](const auto& in) {
        return nll_loss(in[0], target, in[1], reduction, ignore_index);
      }))
    return *y;
  check_reduction("nll_loss", reduction);
  check_class_weights("nll_loss", log_p, weight);
  return rounded_once(log_p.dtype(), [&](DType t) {
    return weighted_nll(to(log_p, t), target, to(weight, t), reduction, ignore_index);
  });
}

Tensor cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight,
                     const std::string& reduction, int64_t ignore_index, double label_smoothing) {
  if (!weight.defined()) return cross_entropy(x, target, reduction, ignore_index, label_smoothing);
  if (const auto y = under_autocast("cross_entropy", {&x, &target, &weight}, [&](const auto& in) {
        return cross_entropy(in[0], in[1], in[2], reduction, ignore_index, label_smoothing);
      }))
    return *y;
  check_reduction("cross_entropy", reduction);
  check_class_weights("cross_entropy", x, weight);
  (void)cross_entropy(x.detach(), target, reduction, ignore_index, label_smoothing);  // refuses the rest
  const double picked = 1 - label_smoothing,
               each_class = label_smoothing / static_cast<double>(weight.numel());
  return rounded_once(x.dtype(), [&](DType t) -> Tensor {
    const Tensor log_p = log_softmax(to(x, t), classes_dim(x)), w = to(weight, t);
    if (is_floating(target.dtype())) {
      const Tensor wanted = add(mul(to(target, t), picked), each_class);
      const Tensor each = neg(sum(mul(mul(log_p, wanted), beside(w, x)), {classes_dim(x)}));
      return reduced(each, reduction, Tensor());  // the mean over rows, whatever they weigh
    }
    const Tensor classes = x.dim() == 1 ? reshape(target, {}) : target;
    const Tensor loss = weighted_nll(log_p, classes, w, reduction, ignore_index);
    if (label_smoothing == 0) return loss;
    const Tensor rest = spread_loss(log_p, classes, w, reduction, ignore_index);
    return add(mul(loss, picked), mul(rest, each_class));
  });
}

Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, const Tensor& weight,
                                        const Tensor& pos_weight, const std::string& reduction) {
  constexpr const char* kName = "binary_cross_entropy_with_logits";
  if (!weight.defined() && !pos_weight.defined())
    return binary_cross_entropy_with_logits(x, target, reduction);
  if (const auto y = under_autocast(
          "binary_cross_entropy_with_logits", {&x, &target, &weight, &pos_weight}, [&](const auto& in) {
            return binary_cross_entropy_with_logits(in[0], in[1], in[2], in[3], reduction);
          }))
    return *y;
  check_reduction(kName, reduction);
  (void)binary_cross_entropy_with_logits(x.defined() ? x.detach() : x, target, "none");  // refuses
  for (const auto& [what, w] : {std::pair("weight", &weight), std::pair("pos_weight", &pos_weight)}) {
    if (!w->defined()) continue;
    if (w->dtype() != x.dtype() || w->device() != x.device() ||
        broadcast(w->shape(), x.shape(), kName) != x.shape())
      throw_invalid(fmt::format("[{}] {} must be {} and broadcast to {}, got {}", kName, what,
                                name(x.dtype()), x.shape().str(), w->summary()));
    refuse_gradient(kName, what, *w);
  }
  return rounded_once(x.dtype(), [&](DType dtype) {
    const Tensor s = to(x, dtype), t = to(target, dtype);
    Tensor each;
    if (pos_weight.defined()) {
      const Tensor counts = add(mul(sub(to(pos_weight, dtype), 1), t), 1);
      each = add(mul(sub(1, t), s), mul(counts, softplus(neg(s))));
    } else {
      each = sub(softplus(s), mul(s, t));
    }
    if (weight.defined()) each = mul(each, to(weight, dtype));
    return reduced(each, reduction, Tensor());
  });
}

namespace {

// They are those of PyTorch's kernels.
constexpr double kLeastLog = -100, kLeastSpread = 1e-12;

Tensors each_binary_cross_entropy(const Call& c) {
  const Tensor &x = c.in[0], &target = c.in[1];
  for (const Tensor& t : c.in) require_floating(c, t);
  require_same_dtype(c);
  if (target.shape() != x.shape())
    reject(c,
           fmt::format("target must be {} as the input is, got {}", x.shape().str(), target.shape().str()));
  if (x.device().is_cpu() && any(logical_not(logical_and(ge(x, 0), le(x, 1)))).item<bool>())
    reject(c,
           "the input must be probabilities in [0, 1], got others; use binary_cross_entropy_with_logits() of "
           "scores");
  const Tensor yes = clamp(log(x), kLeastLog), no = clamp(log1p(neg(x)), kLeastLog);
  return {neg(add(mul(target, yes), mul(sub(1, target), no)))};
}

Tensors binary_cross_entropy_gradient(const Backward& b) {
  const Tensor &x = b.in[0], &target = b.in[1], &g = b.grads[0], rest = sub(1, x);
  Tensors out(2);
  if (b.needs(0)) out[0] = div(mul(g, sub(x, target)), clamp(mul(rest, x), kLeastSpread));
  if (b.needs(1)) out[1] = mul(g, sub(log(rest), log(x)));
  return out;
}

}  // namespace

const Op kBinaryCrossEntropy{.name = "binary_cross_entropy",
                             .inputs = "input target",
                             .text = "Loss of probabilities for probabilities in [0, 1], of each element.",
                             .internal = true,  // the function has weight and reduction
                             .compose = each_binary_cross_entropy,
                             .saves_inputs = 0b11,
                             .gradient = binary_cross_entropy_gradient,
                             .samples = []() -> std::vector<Sample> {
                               return {{{sample({3, 4}, 0.1, 0.9), sample({3, 4}, 0, 1, 1)}},
                                       {{sample({0, 2}, 0.1, 0.9), sample({0, 2}, 0, 1, 1)}}};
                             }};

Tensor binary_cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight,
                            const std::string& reduction) {
  constexpr const char* kName = "binary_cross_entropy";
  check_reduction(kName, reduction);
  if (const auto y = under_autocast("binary_cross_entropy", {&x, &target, &weight}, [&](const auto& in) {
        return binary_cross_entropy(in[0], in[1], in[2], reduction);
      }))
    return *y;
  if (!x.defined() || !target.defined()) return apply1(kBinaryCrossEntropy, {x, target});  // says which one
  if (weight.defined()) {
    if (weight.dtype() != x.dtype() || broadcast(weight.shape(), x.shape(), kName) != x.shape())
      throw_invalid(fmt::format("[{}] weight must be {} and broadcast to {}, got {}", kName, name(x.dtype()),
                                x.shape().str(), weight.summary()));
    refuse_gradient(kName, "weight", weight);
  }
  return rounded_once(x.dtype(), [&](DType t) {
    const Tensor wide = target.dtype() == x.dtype() ? to(target, t) : target;
    const Tensor each = apply1(kBinaryCrossEntropy, {to(x, t), wide});
    return reduced(weight.defined() ? mul(each, to(weight, t)) : each, reduction, Tensor());
  });
}

}  // namespace troupe::ops
