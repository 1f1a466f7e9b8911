#include "parallel/data/replicas.h"

#include <fmt/format.h>

#include <cmath>

#include "actors/cell/actor_cell.h"
#include "actors/cluster/all_gather.h"
#include "autograd/distributed/context.h"
#include "core/codec/codec.h"
#include "ops/ops.h"

namespace troupe::parallel {
namespace {

// What one replica gives.
struct WeightedTensors {
  double weight;
  std::vector<Tensor> tensors;
};

internal::actors::Worker& replica_worker() {
  if (!frame().worker) throw_invalid("[replicas] no worker is active here: all_reduce_mean() is for actors");
  return *frame().worker;
}

void check(const Replicas& group, const std::vector<WeightedTensors>& shares) {
  double total = 0;
  for (const WeightedTensors& share : shares) {
    total += share.weight;
    if (share.tensors.size() != shares[0].tensors.size())
      throw_invalid("[replicas] \"" + group.name + "\" got " + std::to_string(share.tensors.size()) +
                    " tensors of one replica and " + std::to_string(shares[0].tensors.size()) +
                    " of another; expected the same parameters everywhere");
  }
  if (!(total > 0) || !std::isfinite(total))
    throw_invalid(fmt::format("[replicas] \"{}\": the weights add up to {}; expected a number above 0",
                              group.name, total));
}

// In the order of the workers' numbers, everywhere.
Tensor mean_of(const Replicas& group, const std::vector<WeightedTensors>& shares, size_t index) {
  double total = 0;
  for (const WeightedTensors& share : shares) total += share.weight;
  Tensor sum, first;
  for (const WeightedTensors& share : shares) {
    const Tensor& t = share.tensors[index];
    if (!t.defined()) continue;
    if (first.defined() && (t.shape() != first.shape() || t.dtype() != first.dtype()))
      throw_invalid("[replicas] tensor " + std::to_string(index) + " of \"" + group.name + "\" is " +
                    t.summary() + " on one replica and " + first.summary() + " on another");
    first = t;
    if (share.weight == 0) continue;
    Tensor part = ops::mul(t, share.weight / total);
    sum = sum.defined() ? ops::add(sum, part) : part;
  }
  return sum.defined() || !first.defined() ? sum : zeros_like(first);
}

Tensors means_of(const Replicas& group, const ValueList& all) {
  NoGradGuard guard;
  std::vector<WeightedTensors> shares;
  for (const Value& v : all) shares.push_back(internal::from_value<WeightedTensors>(v));
  check(group, shares);
  Tensors means;
  for (size_t i = 0; i < shares[0].tensors.size(); ++i) means.push_back(mean_of(group, shares, i));
  return means;
}

}  // namespace

Task<Tensors> all_reduce_mean(Replicas group, Tensors tensors, double weight) {
  if (!(weight >= 0) || !std::isfinite(weight))
    throw_invalid(fmt::format("[replicas] a weight of {}; expected 0 or more", weight));
  for (Tensor& t : tensors)
    if (t.defined()) t = t.detach();
  internal::actors::Worker& worker = replica_worker();
  const std::string name = "replicas " + group.name;
  if (const auto self = internal::actors::current_cell())
    internal::actors::take_part(worker, name, group.workers, self);
  Value mine = internal::to_value(WeightedTensors{weight, std::move(tensors)});
  const Future<ValueList> given =
      internal::actors::gather(worker, name, group.workers, std::move(mine), group.timeout);
  const ValueList all = co_await given;
  co_return means_of(group, all);
}

Task<void> average_gradients(Replicas group, Tensors leaves, double weight) {
  if (!frame().context)
    throw_invalid(
        "[replicas] average_gradients averages the gradients of a context, and this method was called "
        "outside of one: call it "
        "between step.backward(loss) and optimizer.step(step), where autograd::Context step(cluster) is "
        "alive");
  Tensors gradients;
  for (const Tensor& leaf : leaves) gradients.push_back(autograd::context_gradient(leaf));
  Tensors means = co_await all_reduce_mean(std::move(group), std::move(gradients), weight);
  for (size_t i = 0; i < leaves.size(); ++i) (void)autograd::exchange_context_gradient(leaves[i], means[i]);
}

}  // namespace troupe::parallel
