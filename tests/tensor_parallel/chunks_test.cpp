// Pipelines whose workers have several stages each: the same steps as where each stage has a worker.
#include <catch2/catch.hpp>

#include "parallel/layout/build.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "tests/tensor_parallel/stage_parts.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;
using parallel::Per, parallel::Shard;
using stage_parts::PartStage;

namespace {

struct Trained {
  std::vector<double> losses, norms;
  std::vector<StateDict> states;
  std::string report;
};

// Some steps of the transformer on a mesh, of which each worker has `turns` stages.
Trained train(const Run& run, const std::vector<MeshDim>& dims, const parallel::PipelineOptions& options) {
  const MeshPoints points(dims);
  const auto count = static_cast<int>(points.members().size());
  const auto cluster = Cluster::in_process(count + 1, hosting<PartStage>());
  std::vector<Place> places;
  for (int w = 1; w <= count; ++w) places.emplace_back(w);
  const Mesh mesh(*cluster, dims, places);
  const auto model = parallel::spawn<PartStage>(cluster->here(), mesh, run.parameters[0].shape[0]);
  for (size_t p = 0; p < points.size(); ++p)
    CHECK(model.actors()[p].owner_name() == "w" + std::to_string(points.member(p) + 1));
  all(model.call<&PartStage::load>(stage_parts::start_of(run))).get();
  Trained trained;
  {
    parallel::Pipelines pipelines(cluster->here(), model, stage_parts::method(), options);
    optim::DistributedOptimizer optimizer(model, run.optimizer, run.options);
    for (int step = 0; step < 4; ++step) {
      const auto [x, y] = batch(run, step);
      autograd::Context context(*cluster);
      trained.losses.push_back(pipelines.step(Value(x), Value(y)).loss);
      trained.norms.push_back(optimizer.clip_grad_norm(context, 1e9));
      optimizer.step(context);
    }
    for (const auto& actor : model.actors()) trained.states.push_back(nn::remote_state_dict(actor).get());
    trained.report = pipelines.report().get().str();
  }
  nothing_left(*cluster);
  return trained;
}

void check_same(const Trained& a, const Trained& b) {
  CHECK(a.losses == b.losses);
  CHECK(a.norms == b.norms);
  REQUIRE(a.states.size() == b.states.size());
  for (size_t i = 0; i < a.states.size(); ++i) {
    REQUIRE(a.states[i].size() == b.states[i].size());
    for (const auto& [name, t] : a.states[i]) {
      CAPTURE(i, name);
      CHECK(bit_equal(t, b.states[i].at(name)));
    }
  }
}

}  // namespace

TEST_CASE("workers with two stages each make the steps of twice as many workers, to the bit") {
  const Run run = transformer_runs("generated").at(0);
  struct Case {
    std::vector<MeshDim> chunked, wide;
    parallel::PipelineOptions options = {};
  };
  const Case one = GENERATE(
      Case{{{"dp", 2}, {"pp", 4, 2}, {"tp", 1}}, {{"dp", 2}, {"pp", 4}, {"tp", 1}}},
      Case{{{"dp", 2}, {"pp", 4, 2}, {"tp", 1}},
           {{"dp", 2}, {"pp", 4}, {"tp", 1}},
           {.shard = Shard::gradients}},
      Case{{{"dp", 2}, {"pp", 4, 2}, {"tp", 1}},
           {{"dp", 2}, {"pp", 4}, {"tp", 1}},
           {.schedule = "looped-bfs", .shard = Shard::all, .gather = Per::step, .reduce = Per::step}},
      Case{{{"pp", 4, 2}, {"tp", 2}}, {{"pp", 4}, {"tp", 2}}},
      Case{{{"dp", 2}, {"pp", 4, 2, true}, {"tp", 2}},
           {{"dp", 2}, {"pp", 4}, {"tp", 2}},
           {.schedule = "zb-v", .shard = Shard::state}},
      Case{{{"dp", 2}, {"pp", 4, 4}, {"tp", 2}}, {{"dp", 2}, {"pp", 4}, {"tp", 2}}, {.shard = Shard::all}});
  auto chunked = one.options, wide = one.options;
  chunked.micro_batches = wide.micro_batches = 4;
  for (const MeshDim& d : one.chunked)
    if (d.turns > 1) chunked.chunks = static_cast<int>(d.turns);
  if (chunked.schedule == "1f1b") chunked.schedule = "interleaved";
  if (wide.schedule == "looped-bfs") wide.schedule = "gpipe";
  if (wide.schedule == "zb-v") wide.schedule = "zb-h1";
  CAPTURE(MeshPoints(one.chunked).str(), chunked.schedule, parallel::word(chunked.shard));
  const Trained a = train(run, one.chunked, chunked), b = train(run, one.wide, wide);
  check_same(a, b);
  CHECK(farthest(run, a.losses).first <= tolerance(run, float32));
  CHECK_THAT(a.report, Contains("pp 3"));
}

TEST_CASE("a layout file with chunks makes stages for each, and cuts between all of them") {
  const auto cluster = Cluster::in_process(4);
  const auto layout = [](const std::string& keys) {
    return parallel::parse_layout("{" + keys + "}", "here");
  };
  const std::string chunked = R"("mesh": "dp=2,pp=2", "chunks": 2, "schedule": "interleaved")";
  auto taken = layout(chunked + R"(, "cuts": [1, 2, 3])");
  const Mesh mesh = taken.mesh(cluster->here());
  CHECK(mesh.size("pp") == 4);
  CHECK(taken.cuts(mesh.size("pp")) == std::vector<size_t>{1, 2, 3});
  CHECK(taken.pipelines(mesh).chunks == 2);
  const auto said = [&](const std::string& keys) {
    return invalid_text([&] {
      auto l = layout(keys);
      const Mesh m = l.mesh(cluster->here());
      (void)l.pipelines(m), (void)l.cuts(m.size("pp"));
    });
  };
  CHECK(said(chunked + R"(, "cuts": [2])") == "[layout] here: 1 \"cuts\" make 2 stages, and there are 4");
  CHECK(said(chunked + R"(, "micro_batches": 3)") ==
        "[layout] here: [schedule] interleaved: 3 micro-batches are no multiple of 2 workers");
  CHECK(said(R"("mesh": "dp=2,pp=2", "chunks": 2)") ==
        "[layout] here: [schedule] 1f1b has one chunk for each worker, got 2: use interleaved, looped-bfs, "
        "zb-v, dualpipe-v, or a table");
  CHECK(layout(R"("mesh": "dp=2,pp=2", "chunks": 2, "schedule": "zb-v")").dims()[1].back);
  CHECK(said(R"("mesh": "dp=2,pp=4", "chunks": 2, "schedule": "interleaved")") ==
        "[layout] here: \"mesh\" has 8 points, dp 2 x pp 4 x tp 1, and the cluster 4 workers: change the "
        "sizes, or name 8 of them in \"workers\"");
  auto replicas = layout(R"("mesh": "dp=4", "chunks": 2)");
  CHECK(replicas.replicas_on(cluster->here()).size() == 4);
  CHECK_THAT(invalid_text([&] { replicas.check_all_read(); }),
             Contains("nothing in this program reads \"chunks\""));
}

TEST_CASE("chunks that a mesh does not have are refused, and groups in which a worker would meet itself") {
  const auto cluster = Cluster::in_process(3, hosting<PartStage>());
  const auto refusal = [&](const std::vector<MeshDim>& dims, const parallel::PipelineOptions& options) {
    return invalid_text([&] { parallel::Pipelines::check(MeshPoints(dims), options); });
  };
  CHECK(refusal({{"pp", 2}}, {.schedule = "interleaved", .chunks = 2}) ==
        "[pipelines] 2 chunks, and each worker of the mesh has 1 of its 2 stages: make the mesh with the "
        "dimension {\"pp\", 4, 2}, or with \"chunks\" of a layout file");
  CHECK_THAT(refusal({{"pp", 6, 3}}, {}), Contains("1 chunks, and each worker of the mesh has 3 of its 6"));
  CHECK_THAT(refusal({{"pp", 4, 2}}, {.schedule = "w0=0,3: F0 F0.1 B0.1 B0\nw1=1,2: F0 F0.1 B0.1 B0",
                                      .micro_batches = 1,
                                      .chunks = 2}),
             Contains("the table has stage 2 on worker 1, and the mesh has it on worker 0 along pp: use \""));
  CHECK(refusal({{"pp", 4, 2}}, {.schedule = "zb-v", .micro_batches = 4, .chunks = 2}) ==
        "[pipelines] \"zb-v\" has stage 2 on worker 1, and the mesh has it on worker 0 along pp: give it the "
        "dimension {\"pp\", 4, 2, true}, or a layout file its \"schedule\"");
  CHECK(refusal({{"dp", 2, 2}, {"pp", 2}}, {}) ==
        "[pipelines] dimension dp has 2 turns, and only stages, along pp, may have some");
  CHECK_THAT(refusal({{"pp", 5, 2}}, {.schedule = "interleaved", .chunks = 2}),
             Contains("size 5 in 2 turns"));
  CHECK_THAT(refusal({{"pp", 4, 0}}, {}), Contains("size 4 in 0 turns"));
  CHECK_THAT(refusal({{"pp", 4, 2, true}}, {.schedule = "interleaved", .micro_batches = 4, .chunks = 2}),
             Contains("give that dimension no turns back"));
  const Mesh mesh(*cluster, {{"pp", 4, 2}, {"tp", 1}}, {1, 2});
  const auto model = parallel::spawn<PartStage>(cluster->here(), mesh, int64_t{5});
  CHECK_THAT(invalid_text([&] { (void)mesh.groups("pp"); }),
             Contains("a member has 2 points along pp, and would meet itself"));
}
