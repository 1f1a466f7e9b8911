#include "ops/more_losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/dispatch/cast_call.h"
#include "ops/dispatch/check.h"
#include "ops/dispatch/promote.h"
#include "ops/index.h"
#include "ops/logic.h"
#include "ops/reduce.h"
#include "ops/reshape_ops.h"
#include "ops/unary.h"
#include "ops/view.h"

namespace troupe::ops {
namespace {

using Integers = std::vector<int64_t>;

void require_defined_loss(const char* op, std::initializer_list<const Tensor*> all) {
  for (const Tensor* t : all)
    if (!t->defined()) throw_invalid(fmt::format("[{}] got an undefined tensor", op));
}
void require_known_reduction(const char* op, const std::string& reduction) {
  if (reduction != "mean" && reduction != "sum" && reduction != "none")
    throw_invalid(
        fmt::format("[{}] reduction must be \"mean\", \"sum\" or \"none\", got \"{}\"", op, reduction));
}
Tensor brought_together(const Tensor& each, const std::string& reduction) {
  return reduction == "none" ? each : reduction == "sum" ? sum(each) : mean(each);
}

// ---- ctc_loss. A logarithm of 0 is so low a number that sums and differences of some stay finite.
constexpr double kNever = -1e30;

struct Sequences {
  Integers labels;  // [n, longest] with blanks between, before and behind
  Integers inputs, targets;
  int64_t longest = 1;
};

Integers integers(const char* what, const Tensor& t, int64_t n) {
  if (is_floating(t.dtype()) || t.dtype() == boolean || t.numel() != n || t.dim() > 1)
    throw_invalid(fmt::format("[ctc_loss] {} must be integers [{}], got {}", what, n, t.summary()));
  return t.to_vector<int64_t>();
}

Sequences sequences_of(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                       const Tensor& target_lengths, int64_t blank) {
  const int64_t steps = log_probs.size(0), n = log_probs.size(1), classes = log_probs.size(2);
  if (blank < 0 || blank >= classes)
    throw_invalid(fmt::format("[ctc_loss] blank must be in [0, {}), got {}", classes, blank));
  Sequences s{{}, integers("input_lengths", input_lengths, n), integers("target_lengths", target_lengths, n)};
  int64_t total = 0, most = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t in = s.inputs[static_cast<size_t>(i)], out = s.targets[static_cast<size_t>(i)];
    if (in < 0 || in > steps)
      throw_invalid(fmt::format("[ctc_loss] input_lengths must be at most {}, got {}", steps, in));
    if (out < 0) throw_invalid(fmt::format("[ctc_loss] target_lengths must be at least 0, got {}", out));
    total += out;
    most = std::max(most, out);
  }
  const bool rows = targets.dim() == 2;
  if (is_floating(targets.dtype()) || targets.dtype() == boolean ||
      (rows ? targets.size(0) != n || targets.size(1) < most
            : targets.dim() != 1 || targets.numel() != total))
    throw_invalid(fmt::format("[ctc_loss] targets must be integers [{}, at least {}] or [{}], got {}", n,
                              most, total, targets.summary()));
  const Integers given = targets.to_vector<int64_t>();
  s.longest = 2 * most + 1;
  s.labels.assign(static_cast<size_t>(n * s.longest), blank);
  size_t next = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (rows) next = static_cast<size_t>(i * targets.size(1));
    for (int64_t k = 0; k < s.targets[static_cast<size_t>(i)]; ++k, ++next) {
      if (given[next] < 0 || given[next] >= classes || given[next] == blank)
        throw_invalid(fmt::format("[ctc_loss] targets must be classes in [0, {}) but the blank {}, got {}",
                                  classes, blank, given[next]));
      s.labels[static_cast<size_t>(i * s.longest + 2 * k + 1)] = given[next];
    }
  }
  return s;
}

// Gives x [n, m] moved by some places along dimension 1; what comes in never was.
Tensor moved_in(const Tensor& x, int64_t places) {
  return pad(slice(x, 1, 0, x.size(1) - places), {places, 0}, "constant", kNever);
}

// The losses [n] by the forward recursion over time.
Tensor alignments(const Tensor& log_probs, const Sequences& s) {
  const int64_t n = log_probs.size(1), m = s.longest;
  const Device device = log_probs.device();
  const auto flags = [&](auto f) {
    std::vector<bool> out;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t k = 0; k < m; ++k) out.push_back(f(static_cast<size_t>(i), k));
    return reshape(tensor(out, device), {n, m});
  };
  const auto label = [&](size_t i, int64_t k) {
    return s.labels[i * static_cast<size_t>(m) + static_cast<size_t>(k)];
  };
  const Tensor labels = reshape(tensor(s.labels, device), {n, m});
  const Tensor begins = flags([](size_t, int64_t k) { return k < 2; });
  const Tensor skips =
      flags([&](size_t i, int64_t k) { return k >= 2 && k % 2 && label(i, k) != label(i, k - 2); });
  const Tensor ends = flags([&](size_t i, int64_t k) {
    return k == 2 * s.targets[i] || (k == 2 * s.targets[i] - 1 && s.targets[i] > 0);
  });
  const Tensor lengths = reshape(tensor(s.inputs, device), {n, 1});
  const Tensor never = tensor(kNever, log_probs.options());
  // Before the first step as if it stood in front of the first label.
  Tensor alpha =
      where(flags([](size_t, int64_t k) { return k == 0; }), tensor(0, log_probs.options()), never);
  for (int64_t t = 0; t < log_probs.size(0); ++t) {
    const Tensor seen = clamp(gather(select(log_probs, 0, t), 1, labels), kNever);
    Tensor before = alpha;
    if (t == 0) {
      before = where(begins, tensor(0, log_probs.options()), never);
    } else {
      if (m > 1) before = logaddexp(before, moved_in(alpha, 1));
      if (m > 2) before = where(skips, logaddexp(before, moved_in(alpha, 2)), before);
    }
    alpha = where(gt(lengths, t), add(before, seen), alpha);
  }
  const Tensor loss = neg(logsumexp(where(ends, alpha, never), 1));
  return where(gt(loss, -kNever / 2), HUGE_VAL, loss);
}

}  // namespace

Tensor pairwise_distance(const Tensor& x1, const Tensor& x2, double p, double eps, bool keepdim) {
  if (const auto y = under_autocast("pairwise_distance", {&x1, &x2}, [&](const auto& in) {
        return pairwise_distance(in[0], in[1], p, eps, keepdim);
      }))
    return *y;
  require_defined_loss("pairwise_distance", {&x1, &x2});
  const DType t = result_type(x1, x2);
  if (!is_floating(t))
    throw_invalid(fmt::format("[pairwise_distance] needs a floating dtype, got {} and {}; use .to()",
                              x1.summary(), x2.summary()));
  return rounded_once(
      t, [&](DType wide) { return norm(add(sub(to(x1, wide), to(x2, wide)), eps), p, -1, keepdim); });
}

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           double margin, double p, double eps, bool swap, const std::string& reduction) {
  if (const auto y =
          under_autocast("triplet_margin_loss", {&anchor, &positive, &negative}, [&](const auto& in) {
            return triplet_margin_loss(in[0], in[1], in[2], margin, p, eps, swap, reduction);
          }))
    return *y;
  constexpr const char* kName = "triplet_margin_loss";
  require_defined_loss(kName, {&anchor, &positive, &negative});
  require_known_reduction(kName, reduction);
  if (anchor.dim() != positive.dim() || anchor.dim() != negative.dim() || anchor.dim() == 0)
    throw_invalid(
        fmt::format("[{}] anchor, positive and negative must have as many dimensions, got {}, {} and {}",
                    kName, anchor.summary(), positive.summary(), negative.summary()));
  if (!(margin > 0)) throw_invalid(fmt::format("[{}] margin must be above 0, got {}", kName, margin));
  const DType t = result_type(anchor, positive);
  return rounded_once(t, [&](DType wide) {
    const Tensor a = to(anchor, wide), b = to(positive, wide), c = to(negative, wide);
    Tensor far = pairwise_distance(a, c, p, eps);
    if (swap) far = minimum(far, pairwise_distance(b, c, p, eps));
    return brought_together(clamp(add(sub(pairwise_distance(a, b, p, eps), far), margin), 0.0), reduction);
  });
}

Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, int64_t blank, const std::string& reduction,
                bool zero_infinity) {
  if (const auto y = under_autocast("ctc_loss", {&log_probs}, [&](const auto& in) {
        return ctc_loss(in[0], targets, input_lengths, target_lengths, blank, reduction, zero_infinity);
      }))
    return *y;
  constexpr const char* kName = "ctc_loss";
  require_defined_loss(kName, {&log_probs, &targets, &input_lengths, &target_lengths});
  require_known_reduction(kName, reduction);
  if (!is_floating(log_probs.dtype()) || (log_probs.dim() != 2 && log_probs.dim() != 3) ||
      log_probs.size(0) == 0)
    throw_invalid(fmt::format("[{}] log_probs must be floating [T, N, C] or [T, C], got {}", kName,
                              log_probs.summary()));
  const bool one = log_probs.dim() == 2;
  return rounded_once(log_probs.dtype(), [&](DType wide) {
    const Tensor all = to(one ? unsqueeze(log_probs, 1) : log_probs, wide);
    const Sequences s = sequences_of(all, targets, input_lengths, target_lengths, blank);
    Tensor loss = alignments(all, s);
    if (zero_infinity) loss = where(isinf(loss), 0, loss);
    if (reduction == "mean") {
      Integers lengths = s.targets;
      for (int64_t& n : lengths) n = std::max<int64_t>(n, 1);
      loss = div(loss, to(tensor(lengths, loss.device()), wide));
    }
    return brought_together(one && reduction == "none" ? squeeze(loss, 0) : loss, reduction);
  });
}

}  // namespace troupe::ops
