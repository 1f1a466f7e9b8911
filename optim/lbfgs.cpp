#include "optim/lbfgs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "ops/arithmetic.h"
#include "ops/index.h"
#include "ops/inplace.h"
#include "ops/matmul.h"
#include "ops/min_max.h"
#include "ops/reduce.h"
#include "ops/reshape_ops.h"
#include "ops/unary.h"
#include "ops/view.h"
#include "optim/saved_state.h"
#include "optim/whole_parameters.h"
#include "optim/wolfe_search.h"

namespace troupe::optim {

using internal::Trial;
using internal::wolfe_search;

namespace {

double dot_product(const Tensor& a, const Tensor& b) { return ops::sum(ops::mul(a, b)).item(); }
double largest_size(const Tensor& a) { return ops::amax(ops::abs(a)).item(); }

void check(const Tensors& params, const LBFGSOptions& o) {
  if (params.empty()) throw_invalid("[lbfgs] got no parameters");
  for (const Tensor& p : params) {
    if (!p.defined() || !p.is_leaf() || (p.dtype() != float32 && p.dtype() != float64))
      throw_invalid(fmt::format("[lbfgs] parameters are float32 or float64 and leaves, got {}", p.summary()));
    if (p.dtype() != params[0].dtype() || p.device() != params[0].device())
      throw_invalid(fmt::format("[lbfgs] all parameters are one vector: got {} and {}", params[0].summary(),
                                p.summary()));
  }
  if (!(o.lr >= 0) || !std::isfinite(o.lr))
    throw_invalid(fmt::format("[lbfgs] lr must be 0 or more, got {}", o.lr));
  if (o.max_iter < 1 || o.max_eval < 0 || o.history_size < 1)
    throw_invalid(
        fmt::format("[lbfgs] max_iter and history_size are 1 or more, max_eval 0 or more, got {}, {} and {}",
                    o.max_iter, o.history_size, o.max_eval));
}

}  // namespace

LBFGS::LBFGS(Tensors params, const LBFGSOptions& options) : params_(std::move(params)), options_(options) {
  check(params_, options_);
  internal::require_whole("lbfgs", params_);
  if (options_.max_eval == 0) options_.max_eval = options_.max_iter * 5 / 4;
}

void LBFGS::zero_grad() {
  for (const Tensor& p : params_)
    if (p.grad().defined()) p.set_grad({});
}

Tensor LBFGS::values() const {
  Tensors all;
  for (const Tensor& p : params_) all.push_back(ops::flatten(p.detach()));
  return ops::cat(all, 0);
}

void LBFGS::set_values(const Tensor& all) {
  int64_t from = 0;
  for (const Tensor& p : params_) {
    const Tensor part = ops::slice(all, 0, from, from + p.numel());
    p.detach().copy_(ops::reshape(part, {p.shape().begin(), p.shape().end()}));
    from += p.numel();
  }
}

LBFGS::Point LBFGS::evaluate(const std::function<Tensor()>& closure, Tensor* given) {
  Tensor loss;
  {
    const GradMode on(true);
    loss = closure();
  }
  if (!loss.defined() || loss.numel() != 1)
    throw_invalid(
        fmt::format("[lbfgs] the closure gives the loss, a tensor of one element, got {}", loss.summary()));
  Tensors all;
  for (const Tensor& p : params_)
    all.push_back(p.grad().defined() ? ops::flatten(p.grad().detach()) : zeros({p.numel()}, p.options()));
  const Tensor grad = ops::cat(all, 0);
  if (given) *given = loss.detach();
  return options_.maximize ? Point{-loss.item(), ops::neg(grad)} : Point{loss.item(), grad};
}

// The parameters are those of `from` again, also where the closure throws.
LBFGS::Point LBFGS::at(const std::function<Tensor()>& closure, const Tensor& from, double t) {
  set_values(ops::add(from, direction_, t));
  try {
    const Point there = evaluate(closure);
    set_values(from);
    return there;
  } catch (...) {
    set_values(from);
    throw;
  }
}

void LBFGS::remember(const Tensor& grad) {
  const Tensor y = ops::sub(grad, before_), s = ops::mul(direction_, length_);
  const double ys = dot_product(y, s);
  if (!(ys > 1e-10)) return;
  if (static_cast<int64_t>(history_.size()) == options_.history_size) history_.pop_front();
  history_.push_back({y, s, 1 / ys});
  scale_ = ys / dot_product(y, y);
}

Tensor LBFGS::direction(const Tensor& grad) const {
  Tensor q = ops::neg(grad);
  std::vector<double> alpha(history_.size());
  for (size_t i = history_.size(); i-- > 0;) {
    alpha[i] = dot_product(history_[i].s, q) * history_[i].rho;
    q = ops::add(q, history_[i].y, -alpha[i]);
  }
  q = ops::mul(q, scale_);
  for (size_t i = 0; i < history_.size(); ++i)
    q = ops::add(q, history_[i].s, alpha[i] - dot_product(history_[i].y, q) * history_[i].rho);
  return q;
}

Tensor LBFGS::step(const std::function<Tensor()>& closure) {
  const NoGradGuard off;
  Tensor first;
  Point now = evaluate(closure, &first);
  int64_t evaluations = 1;
  if (largest_size(now.grad) <= options_.tolerance_grad) return first;
  for (int64_t i = 1; i <= options_.max_iter; ++i) {
    if (++iterations_ == 1) {
      direction_ = ops::neg(now.grad);
      history_.clear();
      scale_ = 1;
    } else {
      remember(now.grad);
      direction_ = direction(now.grad);
    }
    before_ = now.grad;
    const double loss_before = now.loss;
    length_ = options_.lr * (iterations_ == 1 ? std::min(1.0, 1 / ops::sum(ops::abs(now.grad)).item()) : 1);
    const double slope = dot_product(now.grad, direction_);
    if (slope > -options_.tolerance_change) break;
    const Tensor from = values();
    bool flat = false;
    if (options_.strong_wolfe) {
      const auto look = [&](double t) {
        ++evaluations;
        const Point there = at(closure, from, t);
        return Trial{t, there.loss, there.grad, dot_product(there.grad, direction_)};
      };
      const Trial found = wolfe_search(look, {0, now.loss, now.grad, slope}, length_,
                                       largest_size(direction_), options_.tolerance_change);
      length_ = found.t, now = {found.loss, found.grad};
      set_values(ops::add(from, direction_, length_));
      flat = largest_size(now.grad) <= options_.tolerance_grad;
    } else {
      set_values(ops::add(from, direction_, length_));
      if (i != options_.max_iter) {
        now = evaluate(closure);
        flat = largest_size(now.grad) <= options_.tolerance_grad;
      }
      ++evaluations;
    }
    if (i == options_.max_iter || evaluations >= options_.max_eval || flat) break;
    if (largest_size(direction_) * length_ <= options_.tolerance_change) break;
    if (std::abs(now.loss - loss_before) < options_.tolerance_change) break;
  }
  return first;
}

StateDict LBFGS::state() const {
  StateDict s{{"iterations", tensor(iterations_, int64)}};
  if (iterations_ == 0) return s;
  s["direction"] = direction_, s["grad"] = before_;
  s["length"] = tensor(length_, float64), s["scale"] = tensor(scale_, float64);
  s["pairs"] = tensor(static_cast<int64_t>(history_.size()), int64);
  for (size_t i = 0; i < history_.size(); ++i) {
    s[fmt::format("y{}", i)] = history_[i].y, s[fmt::format("s{}", i)] = history_[i].s;
    s[fmt::format("rho{}", i)] = tensor(history_[i].rho, float64);
  }
  return s;
}

void LBFGS::load_state(const StateDict& state) {
  const int64_t iterations = saved_count("lbfgs", state, "iterations");
  int64_t elements = 0;
  for (const Tensor& p : params_) elements += p.numel();
  const auto vector = [&](const std::string& name) {
    const auto found = state.find(name);
    if (found == state.end() || found->second.shape() != Shape{elements})
      throw_invalid(fmt::format("[lbfgs] state {} must be [{}], got {}", name, elements,
                                found == state.end() ? "nothing" : found->second.summary()));
    return found->second.to(params_[0].dtype()).to(params_[0].device()).clone();
  };
  Tensor direction, before;
  double length = 0, scale = 1;
  std::deque<Pair> history;
  if (iterations > 0) {
    direction = vector("direction"), before = vector("grad");
    length = saved_number("lbfgs", state, "length"), scale = saved_number("lbfgs", state, "scale");
    const int64_t pairs = saved_count("lbfgs", state, "pairs");
    for (int64_t i = 0; i < pairs; ++i)
      history.push_back({vector(fmt::format("y{}", i)), vector(fmt::format("s{}", i)),
                         saved_number("lbfgs", state, fmt::format("rho{}", i).c_str())});
  }
  iterations_ = iterations, direction_ = direction, before_ = before, length_ = length, scale_ = scale;
  history_ = std::move(history);
}

}  // namespace troupe::optim
