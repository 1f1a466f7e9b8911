// Jobs whose sequences and experts are cut go on where they are cut otherwise.
#include <catch2/catch.hpp>

#include "nn/make.h"
#include "parallel/module/mesh_module.h"
#include "parallel/pipeline/pipelines.h"
#include "tests/support/folder.h"
#include "tests/support/stopped_run.h"
#include "troupe/troupe.h"

using namespace troupe;

namespace {

constexpr int64_t kSteps = 7, kWidth = 8;

struct CutLayout {
  std::vector<MeshDim> dims;
  bool ring = false;
  parallel::Shard shard = parallel::Shard::none;
};

// Losses by step.
std::map<int64_t, double> cut_run(const Checkpoints& checkpoints, const CutLayout& layout, int64_t experts,
                                  int64_t stop = kSteps) {
  manual_seed(6);
  const MeshPoints points(layout.dims);
  auto cluster = Cluster::in_process(static_cast<int>(points.size()), hosting<parallel::MeshModule>(),
                                     {.checkpoints = checkpoints});
  const Value block = nn::spec_of("transformer_encoder_layer", {},
                                  {{"width", kWidth},
                                   {"heads", int64_t{2}},
                                   {"dim_feedforward", int64_t{12}},
                                   {"dropout", 0.0},
                                   {"causal", true}});
  const Value front = nn::spec_of("linear", {kWidth, kWidth});
  const ValueList stages = points.size("pp") == 1 ? ValueList(1, Value(ValueList{front, block, block}))
                                                  : ValueList{ValueList{front, block}, ValueList{block}};
  const auto model =
      parallel::spawn<parallel::MeshModule>(cluster->here(), Mesh(*cluster, layout.dims), stages,
                                            parallel::CutOptions{.ring = layout.ring, .experts = experts});
  parallel::Pipelines train(
      cluster->here(), model, parallel::stage<&parallel::MeshModule::forward>(),
      {.micro_batches = 2,
       .loss = [](const Value& y,
                  const Value& target) { return mse_loss(*y.get_if<Tensor>(), *target.get_if<Tensor>()); },
       .shard = layout.shard});
  optim::Distributed<optim::Adam> optimizer(model, {.lr = 0.02});
  std::map<int64_t, double> losses;
  Job job(*cluster);
  for (const int64_t step : job.steps(kSteps)) {
    if (stop < kSteps && testing::has_stopped(checkpoints.dir, step, stop)) break;
    const Tensor x =
        sin(arange(4 * 6 * kWidth).to(float32) * (0.37 + 0.01 * double(step))).reshape({4, 6, kWidth});
    autograd::Context context(*cluster);
    losses[step] = train.step(Value(x), Value(tanh(x))).loss;
    optimizer.step(context);
  }
  return losses;
}

}  // namespace

TEST_CASE("a job goes on where its sequences, layers and experts are cut otherwise") {
  using parallel::Shard;
  struct Change {
    CutLayout before, after;
    int64_t experts = 0;
  };
  const std::vector<Change> changes{
      {{{{"pp", 1}, {"cp", 3}}, true}, {{{"pp", 2}, {"cp", 2}}}},
      {{{{"pp", 1}, {"cp", 2}, {"tp", 2}}}, {{{"dp", 2}, {"pp", 1}, {"cp", 2}}, true, Shard::state}},
      {{{{"dp", 2}, {"pp", 2}, {"cp", 2}}, true, Shard::gradients}, {{{"pp", 1}, {"tp", 2}}}},
      {{{{"pp", 1}, {"ep", 3}}}, {{{"pp", 2}, {"ep", 2}}}, 5},
      {{{{"pp", 2}, {"ep", 2}, {"cp", 2}}, true}, {{{"pp", 1}}}, 5},
      {{{{"pp", 1}}}, {{{"pp", 1}, {"cp", 2}, {"ep", 2}}}, 5}};
  for (const auto& [before, after, experts] : changes) {
    INFO(MeshPoints(before.dims).str() << " to " << MeshPoints(after.dims).str());
    const auto whole = cut_run({}, before, experts);
    const testing::Folder folder;
    const Checkpoints first{(folder.path / "run").string(), false, 1, 8}, again{first.dir, true, 0, 2};
    (void)cut_run(first, before, experts, 4);
    const auto resumed = cut_run(again, after, experts);
    REQUIRE(resumed.size() > 2);
    CHECK(resumed.begin()->first > 0);
    for (const auto& [step, loss] : resumed) {
      INFO("step " << step);
      CHECK(std::abs(loss - whole.at(step)) <= 2e-5 * std::abs(whole.at(step)));
    }
  }
}
