#include "parallel/data/average_gradients.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "autograd/distributed/context.h"
#include "ops/ops.h"

namespace troupe::parallel {
namespace {

void check(double weight) {
  if (!(weight >= 0) || !std::isfinite(weight))
    throw_invalid(fmt::format("[average_gradients] a weight of {}; expected 0 or more", weight));
  if (!frame().context)
    throw_invalid(
        "[average_gradients] it averages the gradients of a context, and this method was called outside of "
        "one: call it between step.backward(loss) and optimizer.step(step), where autograd::Context "
        "step(cluster) is alive");
}

// The weight, and for each gradient whether there is one.
Tensor told_by(double weight, const Tensors& gradients) {
  std::vector<double> told{weight};
  for (const Tensor& g : gradients) told.push_back(g.defined());
  return tensor(told, float64);
}

// What is summed of a gradient. One of weight 0 may be anything, also NaN.
Tensor share_of(const Tensor& leaf, const Tensor& gradient, double share) {
  const NoGradGuard guard;
  if (!gradient.defined() || share == 0) return zeros(leaf.shape(), leaf.dtype());
  return ops::mul(gradient.detach().data_on(cpu), share);
}

}  // namespace

Task<void> average_gradients(Group group, Tensors leaves, double weight) {
  check(weight);
  Tensors gradients;
  for (const Tensor& leaf : leaves) gradients.push_back(autograd::context_gradient(leaf));
  const Future<Tensor> telling = group.all_reduce(told_by(weight, gradients));
  const Tensor told = co_await telling;
  const auto sums = told.to_vector<double>();
  if (!(sums[0] > 0) || !std::isfinite(sums[0]))
    throw_invalid(
        fmt::format("[average_gradients] the weights add up to {}; expected a number above 0", sums[0]));
  struct Bucket {
    std::vector<size_t> leaves;
    Tensors shares;
    Future<Tensors> means;
  };
  std::map<DType, Bucket> buckets;
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (sums[i + 1] == 0) continue;  // of nobody
    Bucket& bucket = buckets[leaves[i].dtype()];
    bucket.leaves.push_back(i);
    bucket.shares.push_back(share_of(leaves[i], gradients[i], weight / sums[0]));
  }
  for (auto& [dtype, bucket] : buckets) bucket.means = group.all_reduce(std::move(bucket.shares));
  for (auto& [dtype, bucket] : buckets) {
    const Tensors means = co_await bucket.means;
    for (size_t k = 0; k < means.size(); ++k) {
      const Tensor& leaf = leaves[bucket.leaves[k]];
      (void)autograd::exchange_context_gradient(leaf, means[k].data_on(leaf.device()));
    }
  }
}

}  // namespace troupe::parallel
