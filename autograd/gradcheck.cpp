// Central differences of a weighted sum of the result, against one backward pass.
#include "autograd/gradcheck.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "autograd/engine.h"
#include "core/base/error.h"
#include "core/base/generator.h"
#include "core/graph/inplace_write.h"
#include "core/graph/node.h"
#include "core/tensor/creation.h"
#include "core/tensor/elements.h"
#include "ops/arithmetic.h"
#include "ops/reduce.h"

namespace troupe::autograd {
namespace {

// Fixed weights in [0.5, 1.5), so that no two entries of a result can stand for each other.
Tensor weights(const Shape& shape) {
  Generator random(0x67726164);
  const Tensor w = empty(shape, float64);
  double* out = w.data<double>();
  for (int64_t i = 0; i < w.numel(); ++i) out[i] = random.uniform(0.5, 1.5);
  return w;
}

double weighted_sum(const Tensor& result, const Tensor& weight) {
  const std::vector<double> values = result.to_vector<double>();
  const double* w = weight.data<double>();
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) sum += values[i] * w[i];
  return sum;
}

std::string position(int64_t index, const Shape& shape) {
  Shape at = shape;
  for (int d = shape.rank() - 1; d >= 0; --d) at[d] = index % shape[d], index /= shape[d];
  return at.str();
}

// float64 copies as leaves, and which of them to check.
Tensors leaves(const Tensors& inputs, std::vector<size_t>& checked) {
  const bool chosen =
      std::any_of(inputs.begin(), inputs.end(), [](const Tensor& t) { return t.requires_grad(); });
  Tensors out;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!is_floating(inputs[i].dtype())) {
      out.push_back(inputs[i].clone_data());
      continue;
    }
    Tensor leaf = empty(inputs[i].shape(), float64);
    copy_elements(leaf, inputs[i]);
    if (!chosen || inputs[i].requires_grad()) {
      leaf.requires_grad_();
      checked.push_back(i);
    }
    out.push_back(std::move(leaf));
  }
  if (checked.empty()) throw_invalid("[gradcheck] no floating input to check");
  return out;
}

}  // namespace

GradReport gradcheck(const std::function<Tensor(const Tensors&)>& function, const Tensors& inputs, double eps,
                     double tolerance) {
  if (!(eps > 0) || !(tolerance >= 0))
    throw_invalid(fmt::format("[gradcheck] eps must be above 0 and tolerance at least 0, got {} and {}", eps,
                              tolerance));
  std::vector<size_t> checked;
  const Tensors at = leaves(inputs, checked);
  Tensors analytic;
  Tensor weight;
  {
    GradMode on(true);
    const Tensor result = function(at);
    if (!result.defined() || !result.requires_grad())
      throw_invalid("[gradcheck] the result (" + result.summary() +
                    ") has no history: it depends on no checked input");
    weight = weights(result.shape());
    Tensor seed = empty_like(result);
    copy_elements(seed, weight);
    Tensors wanted;
    for (size_t i : checked) wanted.push_back(at[i]);
    analytic = grad({result}, wanted, {seed});
  }

  GradReport report;
  double worst = -1;
  NoGradGuard off;
  for (size_t k = 0; k < checked.size(); ++k) {
    const Tensor& leaf = at[checked[k]];
    const std::vector<double> got =
        analytic[k].defined() ? analytic[k].to_vector<double>() : std::vector<double>(leaf.numel(), 0.0);
    for (int64_t i = 0; i < leaf.numel(); ++i, ++report.entries) {
      const double before = leaf.data<double>()[i];
      const auto put = [&](double value) {
        begin_write(leaf, "gradcheck");
        leaf.data<double>()[i] = value;
        leaf.bump_version("gradcheck");
      };
      const auto moved = [&](double value) {
        put(value);
        return weighted_sum(function(at), weight);
      };
      const double high = moved(before + eps), low = moved(before - eps);
      put(before);
      const double numeric = (high - low) / (2 * eps);
      const double error = std::abs(got[i] - numeric) / (1 + std::abs(numeric));
      if (!std::isnan(error) && error <= worst) continue;
      if (std::isnan(worst)) continue;
      worst = error;
      report = {error <= tolerance, checked[k], i, got[i], numeric, report.entries, {}};
    }
  }
  if (report.entries == 0) {
    report.text = "nothing to compare: the inputs are empty";
    return report;
  }
  const Tensor& leaf = at[report.input];
  report.text = fmt::format("input {} ({}) at {}: analytic {}, numeric {}", report.input, leaf.summary(),
                            position(report.index, leaf.shape()), report.analytic, report.numeric);
  return report;
}

GradReport gradgradcheck(const std::function<Tensor(const Tensors&)>& function, const Tensors& inputs,
                         double eps, double tolerance) {
  std::vector<size_t> checked;
  leaves(inputs, checked);
  const auto gradients = [&](const Tensors& at) {
    GradMode on(true);
    Tensors wanted;
    for (size_t i : checked) wanted.push_back(at[i]);
    const Tensor result = function(at);
    if (!result.defined() || !result.requires_grad())
      throw_invalid("[gradgradcheck] the result (" + result.summary() +
                    ") has no history: it depends on no checked input");
    Tensor seed = empty_like(result);
    copy_elements(seed, weights(result.shape()));
    const Tensors first = grad({result}, wanted, {seed}, {.create_graph = true});
    Tensor sum = tensor(0, float64);
    for (size_t k = 0; k < wanted.size(); ++k) {
      sum =
          ops::add(sum, ops::sum(ops::mul(wanted[k], 0.0)));  // a history even where the gradient is constant
      if (first[k].defined()) sum = ops::add(sum, ops::sum(ops::mul(first[k], weights(first[k].shape()))));
    }
    return sum;
  };
  Tensors marked = inputs;
  for (size_t i : checked) {
    marked[i] = inputs[i].detach();
    marked[i].requires_grad_();
  }
  return gradcheck(gradients, marked, eps, tolerance);
}

}  // namespace troupe::autograd
