// Stages whose parts are whole only while they run: the bits of stages that are whole, and PyTorch's losses.
#include <catch2/catch.hpp>

#include <map>
#include <optional>

#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "tests/tensor_parallel/stage_parts.h"

using namespace troupe;
using namespace troupe::testing;
using parallel::Shard;
using parallel::Sharded;

namespace {

using stage_parts::PartStage, stage_parts::Values;

// A model on a mesh, with the initial values of a run.
struct OnMesh {
  OnMesh(const Run& of, std::vector<MeshDim> dims, const parallel::PipelineOptions& options)
      : run(of),
        in_parts(options.shard == Shard::all),
        cluster(Cluster::in_process(static_cast<int>(workers_in(dims)) + 1, hosting<PartStage>())) {
    std::vector<Place> places;
    for (size_t i = 1; i <= workers_in(dims); ++i) places.emplace_back(i);
    model.emplace(parallel::spawn<PartStage>(cluster->here(), Mesh(*cluster, dims, places),
                                             run.parameters[0].shape[0]));
    all(model->call<&PartStage::load>(stage_parts::start_of(run))).get();
    train.emplace(cluster->here(), *model, stage_parts::method(), options);
    optimizer.emplace(std::vector<AnyRef>(model->actors().begin(), model->actors().end()), run.optimizer,
                      run.options);
  }
  static size_t workers_in(const std::vector<MeshDim>& dims) {
    size_t n = 1;
    for (const MeshDim& d : dims) n *= d.size;
    return n;
  }
  // The loss; `rows` of the batch, if that is not 0.
  double step(size_t number, int64_t rows = 0, double clips_at = 0) {
    auto [x, y] = batch(run, static_cast<int>(number));
    if (rows) x = x.slice(0, 0, rows), y = y.slice(0, 0, rows);
    autograd::Context context(*cluster);
    const double loss = train->step(Value(x), Value(y)).loss;
    if (clips_at > 0) norm = optimizer->clip_grad_norm(context, clips_at);
    optimizer->step(context);
    return loss;
  }
  // Of each actor; pieces of the replicas of a parameter put together.
  std::vector<Values> parameters() {
    std::map<std::vector<size_t>, std::map<std::string, Tensors>> of;
    const MeshPoints points = model->points();
    for (size_t i = 0; i < model->actors().size(); ++i)
      for (const auto& [name, value] : nn::remote_parameters(model->actors()[i]).get())
        of[{points.coordinate(i, "pp"), points.coordinate(i, "tp")}][name].push_back(value);
    std::vector<Values> out;
    for (auto& [at, named] : of) {
      out.emplace_back();
      for (auto& [name, parts] : named) {
        const bool whole = !in_parts || name == "pos";
        Tensors pieces;
        for (const Tensor& t : parts)
          if (t.defined() && (pieces.empty() || !whole)) pieces.push_back(t.reshape({-1}));
        out.back()[name] = ops::cat(pieces, 0);
      }
    }
    return out;
  }
  Run run;
  bool in_parts;
  std::unique_ptr<Cluster> cluster;
  std::optional<parallel::ActorMesh<PartStage>> model;
  std::optional<parallel::Pipelines> train;
  std::optional<optim::DistributedOptimizer> optimizer;
  double norm = 0;
};

void follow_parts(const Run& run, const std::vector<MeshDim>& dims, const parallel::PipelineOptions& options,
                  size_t steps) {
  CAPTURE(run.str(), OnMesh::workers_in(dims), options.schedule);
  OnMesh on(run, dims, options);
  std::vector<double> losses;
  for (size_t step = 0; step < std::min(steps, run.losses.size()); ++step) losses.push_back(on.step(step));
  const auto [distance, step] = farthest(run, losses, float32);
  INFO("largest difference at step " << step);
  CHECK(distance <= tolerance(run, float32));
  nothing_left(*on.cluster);
}

}  // namespace

TEST_CASE("replicas of stages that are made of parts follow PyTorch's losses", "[trajectory][oracle]") {
  for (const Run& run : transformer_runs("generated")) {
    for (const char* schedule : {"1f1b", "zb-h1", "credits(2)"})
      follow_parts(run, {{"dp", 2}, {"pp", 2}, {"tp", 1}},
                   {.schedule = schedule, .micro_batches = 3, .shard = Shard::all}, 20);
    for (const char* schedule : {"1f1b", "credits(2)"})
      follow_parts(run, {{"dp", 2}, {"pp", 2}, {"tp", 2}},
                   {.schedule = schedule, .micro_batches = 2, .shard = Shard::all}, 20);
    follow_parts(run, {{"tp", 1}, {"pp", 2}, {"dp", 3}}, {.micro_batches = 4, .shard = Shard::all}, 20);
  }
}

TEST_CASE("with steps of one pass, stages of parts have the bits of whole stages, and norms are the same") {
  const Run run = transformer_runs("generated").at(0);
  const size_t dp = GENERATE(2, 3), tp = GENERATE(1, 2);
  std::vector<Values> want;
  double norm = 0, same = 0;
  for (const Shard shard : {Shard::none, Shard::state, Shard::gradients, Shard::all}) {
    INFO(word(shard) << " on " << dp << " x 2 x " << tp);
    OnMesh on(run, {{"dp", dp}, {"pp", 2}, {"tp", tp}}, {.micro_batches = 1, .shard = shard});
    for (const int64_t rows : {8, 7, 4}) on.step(0, rows);
    const auto got = on.parameters();
    if (want.empty()) want = got;
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < got.size(); ++i)
      for (const auto& [name, value] : got[i]) {
        INFO(name << " of " << i);
        CHECK(bit_equal(value, want[i].at(name)));
      }
    // Copies, and pieces of them, count once.
    const double loss = on.step(1, 0, 1e-3);
    if (norm == 0) norm = on.norm, same = loss;
    CHECK(on.norm == Approx(norm).epsilon(1e-5));
    CHECK(loss == same);
    nothing_left(*on.cluster);
  }
}

TEST_CASE("what stages of parts cannot do is refused") {
  const Run run = transformer_runs("generated").at(0);
  const auto refuses = [&](const parallel::PipelineOptions& options, const std::string& part) {
    const auto error = error_of([&] { OnMesh(run, {{"dp", 2}, {"pp", 2}, {"tp", 1}}, options).step(0); });
    CHECK(error.kind() == ErrorKind::invalid);
    CHECK_THAT(error.what(), Catch::Contains(part));
  };
  refuses({.checkpoint = parallel::Checkpoint::always, .shard = Shard::all}, "use Checkpoint::never");
  refuses({.tied = {{{0, "pos"}, {1, "pos"}}}, .shard = Shard::all}, "leave out the ties");
}

namespace {

// A layer whose norms are behind the sums, and in no part.
struct PostNorm : nn::ModuleActor<Sharded<tp::TransformerEncoderLayer>> {
  explicit PostNorm(Mesh mesh)
      : ModuleActor(mesh["tp"], 16, 4,
                    nn::TransformerEncoderLayerOptions{.dim_feedforward = 24, .dropout = 0}) {}
  Task<Tensor> forward(Tensor x) { return net(std::move(x)); }
  Tensor loss(Tensor x, Tensor y) { return ops::mse_loss(x, y); }
  static constexpr auto remote = methods<&PostNorm::forward, &PostNorm::loss>;
};

}  // namespace

TEST_CASE("a layer whose halves are parts has the bits of one that is whole, wherever its norms are") {
  std::vector<double> want;
  for (const Shard shard : {Shard::none, Shard::all}) {
    manual_seed(5);
    const auto cluster = Cluster::in_process(5, hosting<PostNorm>());
    const Mesh mesh(*cluster, {{"dp", 2}, {"pp", 1}, {"tp", 2}}, {1, 2, 3, 4});
    const auto model = parallel::spawn<PostNorm>(cluster->here(), mesh);
    parallel::Pipelines train(cluster->here(), model, {.micro_batches = 1, .shard = shard});
    optim::Distributed<optim::Adam> optimizer(model, {.lr = 0.01});
    std::vector<double> losses;
    for (int step = 0; step < 4; ++step) {
      const Tensor x = ops::sin(arange(6 * 3 * 16).to(float32) * (step + 1)).reshape({6, 3, 16});
      autograd::Context context(*cluster);
      losses.push_back(train.step(Value(x), Value(ops::cos(x))).loss);
      optimizer.step(context);
    }
    if (want.empty()) want = losses;
    CHECK(losses == want);
    CHECK(losses.back() < losses.front());
    for (const auto& [name, p] : nn::remote_parameters(model.actors()[0]).get())
      CHECK((name.starts_with("norm") || shard == Shard::none || p.dim() == 1));
    nothing_left(*cluster);
  }
}
