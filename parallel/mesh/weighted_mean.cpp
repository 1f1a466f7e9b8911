#include "parallel/mesh/weighted_mean.h"

#include <fmt/format.h>

#include <cmath>

#include "core/base/error.h"
#include "core/graph/node.h"
#include "ops/arithmetic.h"

namespace troupe::parallel {

namespace {

void check(const char* what, const Tensors& values) {
  if (values.empty()) throw_invalid(fmt::format("[{}] there are no values", what));
  for (size_t i = 0; i < values.size(); ++i) {
    if (!values[i].defined()) throw_invalid(fmt::format("[{}] value {} is undefined", what, i));
    if (values[i].shape() != values[0].shape() || values[i].dtype() != values[0].dtype())
      throw_invalid(fmt::format("[{}] value 0 is {}, and value {} is {}", what, values[0].summary(), i,
                                values[i].summary()));
  }
}

// Several tensors become one; the gradient of each is that of the result times a factor (0: none).
class FromRanks final : public Node {
 public:
  FromRanks(const char* name, const Tensors& from, std::vector<double> factors)
      : name_(name), factors_(std::move(factors)) {
    Edges next;
    for (const Tensor& t : from) next.push_back(t.gradient_edge());
    set_next(std::move(next));
  }
  std::string name() const override { return name_; }
  Tensors apply(Tensors&& grads) override {
    Tensors out;
    for (const double f : factors_)
      out.push_back(f == 0 ? Tensor() : f == 1 ? grads[0] : ops::mul(grads[0], f));
    return out;
  }

 private:
  const char* const name_;
  const std::vector<double> factors_;
};

Tensor recorded(const char* name, const Tensor& value, const Tensors& from, std::vector<double> factors) {
  const Tensor out = value.detach();
  bool needed = false;
  for (const Tensor& t : from) needed |= t.requires_grad();
  if (grad_enabled() && needed) out.set_grad_fn({make_ref<FromRanks>(name, from, std::move(factors)), 0});
  return out;
}

}  // namespace

Tensor same_on_all(const Tensors& values) {
  check("same_on_all", values);
  for (size_t i = 1; i < values.size(); ++i)
    if (!bit_equal(values[0].detach(), values[i].detach()))
      throw_invalid(fmt::format(
          "[same_on_all] value {} differs from value 0 ({} and {}): ranks have computed different things", i,
          values[i].detach().str(), values[0].detach().str()));
  return recorded("same_on_all", values[0], values, std::vector<double>(values.size(), 1));
}

Tensor weighted_mean(const Tensors& values, const std::vector<double>& weights) {
  check("weighted_mean", values);
  std::vector<double> factors = weights.empty() ? std::vector<double>(values.size(), 1) : weights;
  if (factors.size() != values.size())
    throw_invalid(fmt::format("[weighted_mean] {} weights for {} values", factors.size(), values.size()));
  double sum = 0;
  for (const double w : factors) {
    if (!(w >= 0) || !std::isfinite(w))
      throw_invalid(fmt::format("[weighted_mean] weight {}: a number from 0 on is expected", w));
    sum += w;
  }
  if (!(sum > 0)) throw_invalid("[weighted_mean] all weights are 0: there is nothing to take a mean of");
  Tensor mean;
  for (size_t i = 0; i < values.size(); ++i) {
    factors[i] /= sum;
    if (factors[i] == 0) continue;
    const Tensor part = ops::mul(values[i].detach(), factors[i]);
    mean = mean.defined() ? ops::add(mean, part) : part;
  }
  return recorded("weighted_mean", mean, values, std::move(factors));
}

}  // namespace troupe::parallel
