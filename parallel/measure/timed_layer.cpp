#include "parallel/measure/timed_layer.h"

#include <algorithm>
#include <vector>

#include "autograd/split_pass.h"
#include "core/memory/backend.h"
#include "core/memory/cpu_allocator.h"
#include "core/tensor/creation.h"
#include "parallel/pipeline/stage/stage_sums.h"

namespace troupe::internal::parallel {
namespace {

class Nowhere final : public autograd::Sink {
 public:
  void accumulate(const Tensor&, const Tensor&) override {}
};

}  // namespace

TimedLayer time_layer(nn::Layer& layer, const Tensor& x, Backward how, autograd::Sink* sums) {
  TimedLayer took;
  Tensor in = x.detach();
  if (is_floating(in.dtype())) in.requires_grad_();
  const auto in_use = [&] { return static_cast<double>(allocator_stats(x.device()).in_use); };
  const double before = in_use();
  const auto watch = backend_of(x.device()).clock(x.device());
  const Tensor y = layer(in);
  took.forward = watch->lap();
  took.saved = std::max(0.0, in_use() - before);
  if (y.requires_grad()) {
    const Tensor grad = ones_like(y);
    Nowhere nowhere;
    const bool whole = how == Backward::whole;
    autograd::SplitPass pass({y}, !whole && in.requires_grad() ? Tensors{in} : Tensors{});
    (void)watch->lap();
    (void)pass.inputs({grad});
    if (!whole) took.input = watch->lap();
    pass.rest(sums ? *sums : nowhere);
    (whole ? took.backward : took.weight) = watch->lap();
  }
  took.y = y.detach();
  return took;
}

TimedLayer time_layer(nn::Layer& layer, const Tensor& x, int64_t repeats) {
  // What devices need besides, the host does not see.
  (void)take_cpu_peak();
  const auto before = static_cast<double>(take_cpu_peak());  // what is in use
  const double own = time_layer(layer, x, Backward::whole).saved;
  const double working = std::max(0.0, static_cast<double>(take_cpu_peak()) - before - own);
  double saved = time_layer(layer, x, Backward::in_parts).saved;
  TimedLayer mean;
  troupe::parallel::StageSums sums;
  (void)time_layer(layer, x, Backward::whole, &sums);
  const auto part = 1 / static_cast<double>(repeats);
  for (int64_t k = 0; k < repeats; ++k) {
    const TimedLayer whole = time_layer(layer, x, Backward::whole);
    const TimedLayer parts = time_layer(layer, x, Backward::in_parts);
    const TimedLayer adds = time_layer(layer, x, Backward::whole, &sums);
    mean.forward += part * (whole.forward + parts.forward) / 2, mean.backward += part * whole.backward;
    mean.adding += part * (adds.backward - whole.backward);
    mean.input += part * parts.input, mean.weight += part * parts.weight;
    saved = std::min({saved, whole.saved, parts.saved});
    mean.y = parts.y;
  }
  mean.saved = saved, mean.working = working;
  return mean;
}

}  // namespace troupe::internal::parallel
