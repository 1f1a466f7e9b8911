// Models that a layout file places: those that code places, to the bit; and what does not fit is refused
// before anything is sent.
#include <catch2/catch.hpp>

#include <atomic>
#include <memory>

#include "parallel/data/data_parallel.h"
#include "parallel/layout/build.h"
#include "parallel/server/served_parameters.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/nothing_left.h"
#include "tests/tensor_parallel/stage_parts.h"

using namespace troupe;
using namespace troupe::testing;
using parallel::Layout, parallel::Per, parallel::Shard;
using stage_parts::PartStage;

namespace {

// What is the same of both ways.
struct Trained {
  explicit Trained(const Run& of) : run(of), cluster(Cluster::in_process(9, hosting<PartStage>())) {}
  std::vector<double> losses(parallel::Pipelines& train, const std::vector<AnyRef>& actors) {
    optim::DistributedOptimizer optimizer(actors, run.optimizer, run.options);
    std::vector<double> all;
    for (int step = 0; step < 6; ++step) {
      const auto [x, y] = batch(run, step);
      autograd::Context context(*cluster);
      all.push_back(train.step(Value(x), Value(y)).loss);
      optimizer.step(context);
    }
    return all;
  }
  int64_t words() const { return run.parameters[0].shape[0]; }
  Run run;
  std::unique_ptr<Cluster> cluster;
};

std::vector<double> by_code(const Run& run, const std::vector<MeshDim>& dims,
                            const std::vector<Place>& workers, const parallel::PipelineOptions& options) {
  Trained trained(run);
  const Mesh mesh(*trained.cluster, dims, workers);
  const auto model = parallel::spawn<PartStage>(trained.cluster->here(), mesh, trained.words());
  all(model.call<&PartStage::load>(stage_parts::start_of(run))).get();
  parallel::Pipelines train(trained.cluster->here(), model, stage_parts::method(), options);
  return trained.losses(train, {model.actors().begin(), model.actors().end()});
}

std::vector<double> by_file(const Run& run, const std::string& json) {
  Trained trained(run);
  Folder folder;
  auto model = parallel::build<PartStage>(trained.cluster->here(),
                                          parallel::read_layout(folder.file("plan.json", json)),
                                          stage_parts::method(), trained.words(), stage_parts::start_of(run));
  return trained.losses(model.pipelines, model);
}

// Counts how often it is made.
struct Made : nn::ModuleActor<nn::Linear> {
  explicit Made(Mesh) : ModuleActor(2, 2) { ++count; }
  Tensor forward(Tensor x) { return net(x); }
  Tensor loss(Tensor x, Tensor y) { return ops::mse_loss(x, y); }
  static parallel::Stage method() { return parallel::stage<&Made::forward>().with_loss<&Made::loss>(); }
  static constexpr auto remote = methods<&Made::forward, &Made::loss>;
  static inline std::atomic<int> count{0};
};

struct DigitsNet : nn::Module {
  Task<Tensor> operator()(Tensor x) {
    x = co_await first(x);
    co_return co_await second(ops::relu(x));
  }
  void members(nn::Members& m) override { m("first", first), m("second", second); }
  parallel::Sharded<nn::Linear> first{6, 5}, second{5, 3};
};
struct Digits : nn::ModuleActor<DigitsNet> {
  Task<Tensor> loss(Tensor x, Tensor y) {
    const Tensor out = co_await net(x);
    co_return ops::mse_loss(out, y);
  }
  static constexpr auto remote = methods<&Digits::loss>;
};

}  // namespace

TEST_CASE("a layout file makes the mixtures that code makes, to the bit", "[trajectory][oracle]") {
  const Run run = transformer_runs("generated").at(0);
  const auto follows = [&](const std::string& json, const std::vector<MeshDim>& dims,
                           const std::vector<Place>& workers, const parallel::PipelineOptions& options) {
    INFO(json);
    const auto losses = by_file(run, json);
    CHECK(losses == by_code(run, dims, workers, options));
    CHECK(farthest(run, losses).first <= tolerance(run, float32));
  };
  follows(
      R"({"mesh": {"dp": 2, "pp": 2, "tp": 2}, "workers": ["w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8"],
              "shard": "all", "gather": "step", "reduce": "step", "micro_batches": 2})",
      {{"dp", 2}, {"pp", 2}, {"tp", 2}}, {1, 2, 3, 4, 5, 6, 7, 8},
      {.micro_batches = 2, .shard = Shard::all, .gather = Per::step, .reduce = Per::step});
  follows(R"({"mesh": {"pp": 2, "dp": 2}, "workers": ["w4", "w0", "w2", "w7"], "shard": "gradients",
              "schedule": "zb-h1", "micro_batches": 3})",
          {{"dp", 2}, {"pp", 2}, {"tp", 1}}, {4, 0, 2, 7},
          {.schedule = "zb-h1", .micro_batches = 3, .shard = Shard::gradients});
  follows(R"({"mesh": "tp=3", "workers": ["w1", "w2", "w3"], "micro_batches": 1})", {{"pp", 1}, {"tp", 3}},
          {1, 2, 3}, {.micro_batches = 1});
}

TEST_CASE("actors are on the workers that a layout names, in their order") {
  auto cluster = Cluster::in_process(4, hosting<Made>());
  const auto model = parallel::build<Made>(
      cluster->here(), Layout("here", {{"mesh", "dp=3"}, {"workers", ValueList{"w3", "w0", "w1"}}}),
      Made::method());
  std::vector<std::string> owners;
  for (const auto& actor : model.actors.actors()) owners.push_back(actor.owner_name());
  CHECK(owners == std::vector<std::string>{"w3", "w0", "w1"});
  CHECK(model.pipelines.replicas() == 3);
}

TEST_CASE("a mesh has the dimensions of experts and sequences that a layout names") {
  auto cluster = Cluster::in_process(4, hosting<Made>());
  for (const Value& named : {Value("cp=2,ep=1"), Value(ValueMap{{"ep", 1}, {"cp", 2}, {"dp", 1}})}) {
    const Mesh mesh =
        Layout("here", {{"mesh", named}, {"workers", ValueList{"w1", "w0"}}}).mesh(cluster->here());
    CHECK(mesh.size("cp") == 2);
    CHECK(mesh.size("ep") == 1);
    CHECK(mesh.size("pp") == 1);
  }
  const Mesh without = Layout("here", {{"mesh", "tp=4"}}).mesh(cluster->here());
  CHECK_THAT(invalid_text([&] { (void)without.size("cp"); }), Catch::Contains("cp"));
}

TEST_CASE("a layout that does not fit is refused before anything is sent") {
  auto cluster = Cluster::in_process(4, hosting<Made>());
  Made::count = 0;
  const auto said = [&](const std::string& json) {
    return invalid_text([&] {
      (void)parallel::build<Made>(cluster->here(), parallel::parse_layout(json, "here"), Made::method());
    });
  };
  CHECK(said("{}") ==
        "[layout] here: \"mesh\" is missing: the sizes of its dimensions, such as {\"dp\": 2, \"tp\": 2}");
  CHECK(said(R"({"mesh": {"dp": 2, "tp": 4}})") ==
        "[layout] here: \"mesh\" has 8 points, dp 2 x pp 1 x tp 4, and the cluster 4 workers: change the "
        "sizes, "
        "or name 8 of them in \"workers\"");
  CHECK(said(R"({"mesh": {"dp": 2}, "workers": ["w1"]})") ==
        "[layout] here: \"mesh\" has 2 points, dp 2 x pp 1 x tp 1, and \"workers\" names 1: give as many");
  CHECK_THAT(said(R"({"mesh": {"dp": 2}, "workers": []})"), Catch::Contains("\"workers\" names 0"));
  CHECK_THAT(said(R"({"mesh": {"dp": 2}, "workers": ["w1", "w1"]})"),
             Catch::StartsWith("[layout] here: \"workers\": [group] w1 is there twice"));
  CHECK_THAT(said(R"({"mesh": {"dp": 2}, "workers": ["w1", "w9"]})"),
             Catch::StartsWith("[layout] here: \"workers\": ") && Catch::Contains("w9"));
  CHECK(said(R"({"mesh": {"dp": 2}, "workers": "w1, w2"})") ==
        "[layout] here: \"workers\" is \"w1, w2\": expected a list of texts");
  CHECK(said(R"({"mesh": {"sp": 4}})") ==
        "[layout] here: \"mesh\" has no dimension \"sp\"; did you mean \"dp\"? There are: \"dp\", \"pp\", "
        "\"ep\", \"cp\", \"tp\"");
  CHECK(said(R"({"mesh": {"dp": 0}})") ==
        "[layout] here: \"dp\" of \"mesh\" is 0: expected a whole number from 1 to 1048576");
  CHECK(said(R"({"mesh": 4})") ==
        "[layout] here: \"mesh\" is 4: expected sizes of dimensions, such as {\"dp\": 2, \"tp\": 2}");
  CHECK_THAT(said(R"({"mesh": "dp=2;tp=2"})"), Catch::StartsWith("[layout] here: \"mesh\": [mesh] "));
  CHECK_THAT(said(R"({"mesh": "dp=4294967296,tp=4294967296"})"), Catch::Contains("each a whole number"));
  CHECK_THAT(said(R"({"mesh": {"dp": 1048576, "pp": 1048576, "tp": 1048576}})"),
             Catch::Contains("has 1152921504606846976 points"));
  CHECK(said(R"({"mesh": "dp=4", "shard": "some"})") ==
        "[layout] here: \"shard\": [shard] \"some\": expected none, state, gradients or all");
  CHECK(said(R"({"mesh": "dp=4", "shard": 1})") == "[layout] here: \"shard\" is 1: expected text");
  CHECK(said(R"({"mesh": "dp=4", "shard": "all", "gather": "once"})") ==
        "[layout] here: \"gather\" is \"once\": expected use or step");
  CHECK(said(R"({"mesh": "dp=4", "shard": "state", "reduce": "step"})") ==
        "[layout] here: \"reduce\" is of the parts that \"shard\": \"all\" has; here it is Shard::state");
  CHECK_THAT(said(R"({"mesh": "dp=4", "schedule": "auto"})"),
             Catch::StartsWith("[layout] here: [pipelines] \"auto\""));
  CHECK_THAT(said(R"({"mesh": "dp=2,tp=2", "checkpoint": "always"})"), Catch::Contains("Checkpoint::never"));
  CHECK_THAT(said(R"({"mesh": "pp=4", "chunks": 3})"), Catch::Contains("1f1b has one chunk for each worker"));
  CHECK(said(R"({"mesh": "dp=4", "cuts": [1]})") ==
        "[layout] here: nothing in this program reads \"cuts\"; it reads: \"checkpoint\", \"chunks\", "
        "\"gather\", \"mesh\", \"micro_batches\", \"reduce\", \"rows\", \"schedule\", \"shard\", \"slices\", "
        "\"workers\"");
  CHECK_THAT(said(R"({"mesh": "dp=4", "policies": {"words": "bsp"}})"),
             Catch::Contains("nothing in this program reads \"policies\""));
  CHECK(Made::count == 0);
}

TEST_CASE("servers beside a model have the policies of its layout, which have to be theirs") {
  auto cluster = Cluster::in_process(2, hosting<Made>());
  const auto policies = [&](const std::string& json, const std::string& name) {
    Layout layout = parallel::parse_layout(json, "here");
    const auto served =
        parallel::serve(cluster->here(), {"w0"}, {zeros({3})}, {.policy = layout.policy(name)});
    (void)parallel::build<Made>(cluster->here(), layout, Made::method());
    return parallel::report(served).get().at(0).policy;
  };
  const std::string json = R"json({"mesh": {"pp": 2}, "policies": {"words": "ssp(3)"}})json";
  CHECK(policies(json, "words") == "ssp(3)");
  CHECK(
      invalid_text([&] { policies(json, "word"); }) ==
      "[layout] here: \"policies\" names \"words\", which this program does not serve; it serves: \"word\"");
}

TEST_CASE("replicas are as a layout file says, too") {
  auto cluster = Cluster::in_process(3, hosting<Digits>());
  const Here here = cluster->here();
  Generator generator(3);
  const Tensor x = ops::randn({7, 6}, generator), y = ops::randn({7, 3}, generator);
  const auto train = [&](auto make) {
    manual_seed(5);
    auto net = make();
    optim::Distributed<optim::Adam> optimizer(net, {.lr = 1e-2});
    std::vector<double> losses;
    for (int i = 0; i < 4; ++i) {
      autograd::Context step(*cluster);
      const Tensor loss = net.template mean<&Digits::loss>(parallel::split(x), parallel::split(y)).get();
      losses.push_back(loss.item());
      step.backward(loss);
      optimizer.step(step);
    }
    const auto kept = net.report().get();
    return std::pair(losses, kept.str());
  };
  const std::string json =
      R"({"mesh": {"dp": 2}, "workers": ["w2", "w1"], "shard": "all", "gather": "step"})";
  const auto by_file =
      train([&] { return parallel::build_replicas<Digits>(here, parallel::parse_layout(json, "here")); });
  const auto by_code = train([&] {
    return parallel::DataParallel<Digits>(
        here, Group(*cluster, {"w2", "w1"}),
        parallel::DataParallelOptions{.shard = Shard::all, .gather = Per::step});
  });
  CHECK(by_file.first == by_code.first);
  CHECK_THAT(by_file.second, Catch::Contains("Shard::all"));

  const auto said = [&](const std::string& text) {
    return invalid_text(
        [&] { (void)parallel::build_replicas<Digits>(here, parallel::parse_layout(text, "here")); });
  };
  CHECK(said(R"({"mesh": {"dp": 1, "tp": 3}})") ==
        "[layout] here: \"mesh\" has tp 3, and this program cuts its model along \"dp\" alone");
  Layout known("here", {{"mesh", "dp=1,pp=3"}});
  known.check_dims({"dp", "pp"});
  CHECK_FALSE(known.has("cuts"));
  CHECK_THAT(invalid_text([&] { parallel::parse_layout(R"({"format": "troupe model profile 1"})", "here"); }),
             Catch::Contains("here: this is a profile of a model, of which `troupe plan` makes a layout"));
  CHECK_THAT(said(R"({"mesh": {"dp": 3}, "schedule": "1f1b"})"),
             Catch::EndsWith("nothing in this program reads \"schedule\"; it reads: \"gather\", \"mesh\", "
                             "\"reduce\", \"shard\", \"workers\""));
}
