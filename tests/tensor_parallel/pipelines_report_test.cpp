// What pipelines on a mesh report of their ranks: what formulas say, and what the simulated network has seen.
#include <catch2/catch.hpp>

#include <optional>

#include "nn/make.h"
#include "parallel/module/mesh_module.h"
#include "parallel/pipeline/module_stage.h"
#include "parallel/pipeline/pipelines.h"
#include "parallel/pipeline/stage_layers.h"
#include "parallel/sharded/sharded_encoder_layer.h"
#include "rref/ref_table.h"
#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;
using Catch::Contains;
using parallel::Per;
using parallel::PipelinesReport;
using parallel::RankBytes;
using parallel::Shard;
using parallel::Sharded;

namespace {

constexpr int64_t kWidth = 128, kTime = 16, kRows = 8;

// Two blocks, and a linear layer in front that is in no part.
struct ReportedNet : nn::Module {
  explicit ReportedNet(const Mesh& mesh) {
    const parallel::StageLayers own(mesh, 2);
    if (own.first()) front.emplace(kWidth, kWidth);
    for (const size_t b : own)
      blocks.try_emplace(b, mesh["tp"], kWidth, 4,
                         nn::TransformerEncoderLayerOptions{
                             .dim_feedforward = 4 * kWidth, .dropout = 0, .norm_first = true});
  }
  Task<Tensor> forward(Tensor x) {
    if (front) x = (*front)(x);
    for (auto& [number, block] : blocks) x = co_await block(x);
    co_return x;
  }
  Tensor loss(const Tensor& x, const Tensor& y) { return ops::mse_loss(x, y); }
  void members(nn::Members& m) override {
    if (front) m("front", *front);
    for (auto& [number, block] : blocks) m("block" + std::to_string(number), block);
  }
  std::optional<nn::Linear> front;
  std::map<size_t, Sharded<tp::TransformerEncoderLayer>> blocks;
};
using ReportedStage = parallel::ModuleStage<ReportedNet>;

struct ReportedWorld {
  ReportedWorld(std::vector<MeshDim> dims, size_t count, const parallel::PipelineOptions& options)
      : ranks(count), cluster(1, static_cast<int>(count) + 1, hosting<ReportedStage>()) {
    const Here here(internal::rref::RefTable::of(cluster.worker(0)));
    std::vector<Place> places;
    for (size_t i = 1; i <= ranks; ++i) places.emplace_back("w" + std::to_string(i));
    model.emplace(parallel::spawn<ReportedStage>(here, Mesh(cluster.worker(0), std::move(dims), places)));
    train.emplace(here, *model, options);
    optimizer.emplace(*model, optim::AdamOptions{});
  }
  ~ReportedWorld() {
    optimizer.reset(), train.reset(), model.reset();
    cluster.settle();
  }
  void step() {
    const Tensor x = ops::sin(arange(kRows * kTime * kWidth).to(float32)).reshape({kRows, kTime, kWidth});
    autograd::Context context(cluster.worker(0));
    cluster.await(train->step_async(Value(x), Value(ops::cos(x)))).value();
    cluster.await(optimizer->step_async(context)).value();
    cluster.settle();
  }
  PipelinesReport report() { return cluster.await(train->report()).value(); }
  // What a rank has sent to all others.
  std::vector<double> network() {
    std::vector<double> all;
    for (size_t from = 1; from <= ranks; ++from) {
      uint64_t bytes = 0;
      for (size_t to = 1; to <= ranks; ++to)
        bytes += cluster.network().counters("w" + std::to_string(from), "w" + std::to_string(to)).bytes;
      all.push_back(double(bytes));
    }
    return all;
  }
  const size_t ranks;
  SimulatedCluster cluster;
  std::optional<parallel::ActorMesh<ReportedStage>> model;
  std::optional<parallel::Pipelines> train;
  std::optional<optim::Distributed<optim::Adam>> optimizer;
};

// Bytes of the parameters of a block that a rank of `tp` has: those of the norms and biases behind the sums
// are whole, the latter with rank 0.
double block_bytes(double tp, size_t rank) {
  const double w = kWidth;
  const double cut = (3 * w * w + 3 * w + w * w + 2 * 4 * w * w + 4 * w) / tp;
  return 4 * (cut + 4 * w + (rank == 0 ? 2 * w : 0));
}

}  // namespace

TEST_CASE("what pipelines report of their ranks is what formulas say, and what the network has seen") {
  struct Ways {
    Shard shard;
    Per gather = Per::use, reduce = Per::use;
  };
  const double m = 2, dp = 2, tp = 2, front = 4 * (kWidth * kWidth + kWidth);
  for (const Ways& ways : {Ways{Shard::none}, Ways{Shard::state}, Ways{Shard::gradients}, Ways{Shard::all},
                           Ways{Shard::all, Per::step, Per::step}}) {
    INFO(parallel::word(ways.shard) << " " << int(ways.gather));
    ReportedWorld world(
        {{"dp", 2}, {"pp", 2}, {"tp", 2}}, 8,
        {.micro_batches = int(m), .shard = ways.shard, .gather = ways.gather, .reduce = ways.reduce});
    for (const auto& place : world.report().places)
      for (const RankBytes& rank : place.replicas) {  // not what joining sent
        CHECK(rank.sent == 0);
        CHECK(rank.to_stages == 0);
        CHECK(rank.state == 0);
        CHECK(rank.parameters > 0);
      }
    CHECK_THAT(world.report().str(), !Contains("idle"));
    world.step();
    const auto before = world.network();
    world.step();
    const auto after = world.network();
    const PipelinesReport report = world.report();
    REQUIRE(report.places.size() == 4);
    for (size_t p = 0; p < 4; ++p) {
      const size_t stage = p / 2, t = p % 2;
      CHECK(report.places[p].name == "pp " + std::to_string(stage) + ", tp " + std::to_string(t));
      REQUIRE(report.places[p].replicas.size() == 2);
      const bool in_parts = ways.shard == Shard::all;
      const double block = block_bytes(tp, t), others = (stage == 0 ? front : 0) + (in_parts ? 0 : block);
      const double parts = in_parts ? block : 0, all = parts + others;
      const bool pieces = ways.shard == Shard::gradients || in_parts;
      // Two sums of activations forward and two back, of half of the rows each micro-batch.
      const double activations = 4 * kRows / dp * kTime * kWidth, sums = 4 * activations * 2 * (tp - 1) / tp;
      const double of_parts = (ways.gather == Per::use ? 2 * m : 1) + (ways.reduce == Per::use ? m : 1);
      const double replicas =
          (of_parts * parts + (ways.shard == Shard::state ? 3 : 2) * others) * (dp - 1) / dp;
      for (size_t r = 0; r < 2; ++r) {
        const RankBytes& rank = report.places[p].replicas[r];
        INFO(report.places[p].name << ", replica " << r << ": " << rank.actor);
        CHECK(double(rank.whole) == all);
        CHECK(double(rank.converted) == Approx(sums).epsilon(0.001));
        for (const RankBytes& b : {rank, report.expected(p, r)}) {
          CHECK(double(b.parameters) == Approx(parts / dp + others).epsilon(0.02));
          CHECK(double(b.gradients) == Approx(pieces ? all / dp : all).epsilon(0.02));
          CHECK(double(b.state) == Approx(2 * (ways.shard == Shard::none ? all : all / dp)).epsilon(0.02));
          CHECK(double(b.sent) == Approx(replicas + sums).epsilon(0.02));
        }
        CHECK(double(rank.to_stages) == activations);  // forward, or back
        const size_t worker = r * 4 + stage * 2 + t;
        CHECK(after[worker] - before[worker] == Approx(double(rank.sent + rank.to_stages)).epsilon(0.05));
        CHECK_THAT(report.str(), Contains(rank.actor));
      }
    }
    CHECK_THAT(report.str(), Contains("dp 2 x pp 2 x tp 2 with ") && Contains("pp 1, tp 0, by formula") &&
                                 Contains("  dp 1: ") && Contains("to other stages") && Contains("1f1b: "));
  }
}

TEST_CASE("what pipelines report of cut sequences and experts is what formulas say") {
  const ValueMap layer{
      {"width", kWidth}, {"heads", int64_t{4}}, {"dim_feedforward", 4 * kWidth}, {"dropout", 0.0}};
  const Value block = nn::spec_of("transformer_encoder_layer", {}, layer),
              front = nn::spec_of("linear", {kWidth, kWidth});
  struct Axes {
    std::vector<MeshDim> dims;
    parallel::CutOptions cut;
  };
  for (const Axes& axes :
       {Axes{{{"pp", 2}, {"cp", 2}}, {}}, Axes{{{"pp", 1}, {"cp", 3}}, {.ring = true}},
        Axes{{{"pp", 2}, {"tp", 2}, {"cp", 2}}, {.ring = true}}, Axes{{{"pp", 1}, {"ep", 4}}, {.experts = 6}},
        Axes{{{"dp", 2}, {"pp", 1}, {"ep", 2}, {"cp", 2}}, {.ring = true, .experts = 5, .capacity = 1}}}) {
    const MeshPoints points(axes.dims);
    INFO(points.str());
    SimulatedCluster cluster(1, static_cast<int>(points.size()) + 1, hosting<parallel::MeshModule>());
    const Here here(internal::rref::RefTable::of(cluster.worker(0)));
    std::vector<Place> places;
    for (size_t i = 1; i <= points.size(); ++i) places.emplace_back("w" + std::to_string(i));
    const ValueList stages = points.size("pp") == 1 ? ValueList(1, Value(ValueList{front, block, block}))
                                                    : ValueList{ValueList{front, block}, ValueList{block}};
    {
      const auto model = parallel::spawn<parallel::MeshModule>(
          here, Mesh(cluster.worker(0), axes.dims, places), stages, axes.cut);
      parallel::Pipelines train(here, model, parallel::stage<&parallel::MeshModule::forward>(),
                                {.micro_batches = 2, .loss = [](const Value& y, const Value& target) {
                                   return ops::mse_loss(*y.get_if<Tensor>(), *target.get_if<Tensor>());
                                 }});
      const Tensor x = ops::sin(arange(kRows * kTime * kWidth).to(float32)).reshape({kRows, kTime, kWidth});
      {
        autograd::Context context(cluster.worker(0));
        cluster.await(train.step_async(Value(x), Value(ops::cos(x)))).value();
        cluster.settle();
      }
      const PipelinesReport report = cluster.await(train.report()).value();
      for (size_t p = 0; p < report.places.size(); ++p)
        for (size_t r = 0; r < report.places[p].replicas.size(); ++r) {
          INFO(report.places[p].name << ", replica " << r);
          const RankBytes& rank = report.places[p].replicas[r];
          CHECK(rank.converted > 0);
          CHECK(double(rank.sent) == Approx(double(report.expected(p, r).sent)).epsilon(0.02));
        }
    }
    cluster.settle();
  }
}

TEST_CASE("pipelines without replicas divide nothing, and say so") {
  ReportedWorld world({{"tp", 1}, {"pp", 2}}, 2, {.micro_batches = 4, .shard = Shard::all});
  CHECK(world.report().ways.uses == 4);
  world.step();
  const PipelinesReport report = world.report();
  REQUIRE(report.places.size() == 2);
  CHECK(report.places[1].name == "pp 1, tp 0");
  for (size_t p = 0; p < 2; ++p) {
    const RankBytes& rank = report.places[p].replicas.at(0);
    CHECK(rank.sent == 0);
    CHECK(report.expected(p, 0).sent == 0);
    CHECK(rank.parameters == rank.whole);
    CHECK(rank.state == 2 * rank.whole);
    CHECK(rank.to_stages == 4 * kRows * kTime * kWidth);
  }
  CHECK_THAT(report.str(), Contains("tp 1 x pp 2 with Shard::none"));
}

TEST_CASE("stages have layers as evenly as they go") {
  const auto numbers = [](size_t layers, size_t stages) {
    std::vector<std::vector<size_t>> all;
    for (size_t s = 0; s < stages; ++s) {
      const parallel::StageLayers own(layers, s, stages);
      CHECK(own.first() == (s == 0));
      CHECK(own.last() == (s + 1 == stages));
      all.emplace_back(own.begin(), own.end());
      CHECK(own.size() == all.back().size());
    }
    return all;
  };
  using All = std::vector<std::vector<size_t>>;
  CHECK(numbers(4, 2) == All{{0, 1}, {2, 3}});
  CHECK(numbers(5, 3) == All{{0, 1}, {2, 3}, {4}});
  CHECK(numbers(2, 3) == All{{0}, {1}, {}});
  CHECK(numbers(3, 1) == All{{0, 1, 2}});
  CHECK_THROWS_WITH(parallel::StageLayers(4, 2, 2), Contains("no stage 2 of 2"));
}

TEST_CASE("one seed gives one model, however its layers are cut into stages") {
  const auto made = [](size_t stages) {
    std::map<std::string, Tensor> all;
    for (size_t s = 0; s < stages; ++s) {
      manual_seed(7);  // as the actors of a mesh begin
      const nn::Linear before(3, 3);
      all["before"] = before.weight;  // what all stages have
      const parallel::StageLayers own(5, s, stages);
      if (own.first()) all["words"] = nn::Embedding(4, 3).weight;
      for (const size_t b : own) all["layer " + std::to_string(b)] = nn::Linear(3, 3).weight;
      if (own.last()) all["head"] = nn::Linear(3, 4).weight;
    }
    return all;
  };
  const auto whole = made(1);
  REQUIRE(whole.size() == 8);
  for (const auto& [name, t] : whole)  // no two draw alike
    for (const auto& [other, o] : whole)
      if (name != other && t.shape() == o.shape()) CHECK_FALSE(t.equal(o));
  for (size_t stages = 2; stages <= 7; ++stages)
    for (const auto& [name, t] : made(stages)) {
      CAPTURE(stages, name);
      CHECK(t.equal(whole.at(name)));
    }
}
