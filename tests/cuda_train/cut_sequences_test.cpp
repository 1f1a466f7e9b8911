// Sequences that are cut over GPUs: attention by heads and by a ring is that of the host.
#ifdef TROUPE_CUDA_SIM  // real NCCL wants a process for each GPU
#include <catch2/catch.hpp>

#include "tests/cuda/gpus.h"
#include "tests/support/sim_cuda/nccl_sim.h"
#include "troupe/context_parallel.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

constexpr int64_t kTime = 11, kWidth = 64;

struct SequenceRank : nn::ModuleActor<cp::TransformerEncoderLayer> {
  SequenceRank(Mesh mesh, bool ring)
      : ModuleActor(cp::Ranks(mesh["cp"]), kWidth, 2,
                    nn::TransformerEncoderLayerOptions{
                        .dim_feedforward = 48, .dropout = 0, .norm_first = true, .causal = true},
                    ring ? cp::Way::ring : cp::Way::heads) {}
  Task<Tensor> loss(Tensor x) {  // of its positions
    x = x.to(net.parameters()[0].device());
    Task<Tensor> running = net(x, cp::Sequence(kTime, 2));
    const Tensor y = co_await std::move(running);
    co_return ops::sum(ops::mul(y, ops::sin(x))).to(cpu);
  }
  static constexpr auto remote = methods<&SequenceRank::loss>;
};

std::vector<double> losses_of(bool ring, bool on_gpus) {
  sim_cuda::reset_nccl();
  manual_seed(8);
  const auto cluster = Cluster::in_process(2, hosting<SequenceRank>());
  const auto model = parallel::spawn<SequenceRank>(cluster->here(), Mesh(*cluster, {{"cp", 2}}), ring);
  for (size_t r = 0; r < 2 && on_gpus; ++r)
    nn::remote_to(model.actors()[r], "cuda:" + std::to_string(r)).get();
  optim::Distributed<optim::Adam> adam(model, {.lr = 0.01});
  const Tensor x = ops::sin(arange(2 * kTime * kWidth).to(float32)).reshape({2, kTime, kWidth});
  const cp::Sequence sequence(kTime, 2);
  const std::vector<Tensor> pieces{sequence.piece(x, 1, 0), sequence.piece(x, 1, 1)};
  std::vector<double> losses;
  for (int i = 0; i < 4; ++i) {
    autograd::Context step(*cluster);
    const Tensor loss =
        parallel::weighted_mean(all(model.call<&SequenceRank::loss>(parallel::along("cp", pieces))).get());
    step.backward(loss);
    adam.step(step);
    losses.push_back(loss.item());
  }
  return losses;
}

}  // namespace

TEST_CASE("a sequence that is cut over GPUs trains as over workers of the host") {
  if (!needs_gpus(2)) return;
  for (const bool ring : {false, true}) {
    CAPTURE(ring);
    const auto here = losses_of(ring, false), there = losses_of(ring, true);
    CHECK(here[3] != here[0]);
    for (size_t i = 0; i < here.size(); ++i) CHECK(there[i] == Approx(here[i]).epsilon(1e-4));
  }
}
#endif
