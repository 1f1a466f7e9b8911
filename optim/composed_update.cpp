#include "optim/composed_update.h"

#include <cmath>

#include "core/graph/autocast.h"
#include "core/graph/node.h"
#include "core/tensor/elements.h"
#include "ops/arithmetic.h"
#include "ops/dispatch/attrs.h"
#include "ops/reduce.h"
#include "ops/unary.h"

namespace troupe::internal {

void update_each(ComposedUpdate* update, std::span<const Tensor> in, const Tensors& out,
                 const ops::Attrs& options) {
  const NoGradGuard off;
  const NoAutocastGuard as_they_are;
  const double scale = options.number("scale");
  const auto& numbers = options.ints("steps");
  const size_t count = numbers.size();
  for (size_t i = 0; i < count; ++i) {
    const Tensor now = (in.size() > count && in[count + i].defined() ? in[count + i] : out[i]).detach();
    ParameterStep step{now, scale == 1 ? in[i].detach() : ops::mul(in[i].detach(), scale), {}, numbers[i]};
    for (size_t k = i + count; k < out.size(); k += count) step.slots.push_back(out[k].detach());
    const Tensors values = update(options, step);
    for (size_t k = 0; k < values.size(); ++k) copy_elements(out[i + k * count], values[k]);
  }
}

double root_mean_square(const Tensor& x) {
  if (x.numel() == 0) return 0;
  return std::sqrt(ops::sum(ops::square(x)).item()) / std::sqrt(static_cast<double>(x.numel()));
}

}  // namespace troupe::internal
