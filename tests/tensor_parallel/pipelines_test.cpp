// Pipelines over a mesh: what they refuse, and what is left of a step in which a rank failed.
#include "parallel/pipeline/pipelines.h"

#include <catch2/catch.hpp>

#include <set>

#include "core/graph/autocast.h"
#include "parallel/pipeline/module_stage.h"
#include "parallel/tensor/linear.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

struct HalfNet : nn::Module {
  explicit HalfNet(const Group& tp) : up(tp, 4, 6), down(tp, 6, 4) {}
  void members(nn::Members& m) override { m("up", up), m("down", down); }
  tp::ColumnLinear up;
  tp::RowLinear down;
};

// Stages of two layers, and what goes wrong in them.
struct Half : nn::ModuleActor<HalfNet> {
  explicit Half(Mesh m) : ModuleActor(m["tp"]), mesh(m) {}
  Task<Tensor> forward(Tensor x) {
    if (fails) throw_error(ErrorKind::failed, "[half] out of luck");
    const Tensor hidden = net.up(x);
    const tp::Part part = net.down(ops::tanh(hidden));
    Tensor y = co_await part;
    for (const Tensor& t : {hidden, ops::matmul(y, y.t())}) seen.emplace(troupe::name(t.dtype()));
    if (differs) y = y + 1;
    co_return y;
  }
  Tensor loss(Tensor x, Tensor y) { return ops::mse_loss(x, y); }
  void set(bool fail, bool differ) { fails = fail, differs = differ; }
  // The dtypes of products since it was asked last, also behind a co_await.
  std::vector<std::string> products() {
    const std::vector<std::string> all(seen.begin(), seen.end());
    seen.clear();
    return all;
  }
  std::vector<int64_t> place() {
    return {static_cast<int64_t>(mesh.coordinate("pp")), static_cast<int64_t>(mesh.coordinate("tp"))};
  }
  Mesh mesh;
  bool fails = false, differs = false;
  std::set<std::string> seen;
  static constexpr auto remote =
      methods<&Half::forward, &Half::loss, &Half::set, &Half::place, &Half::products>;
};

struct World {
  explicit World(std::vector<MeshDim> dims, int workers)
      : cluster(Cluster::in_process(workers + 1, hosting<Half>())),
        model(parallel::spawn<Half>(cluster->here(), Mesh(*cluster, std::move(dims), places(workers)))) {}
  static std::vector<Place> places(int workers) {
    std::vector<Place> all;
    for (int i = 1; i <= workers; ++i) all.emplace_back(i);
    return all;
  }
  static parallel::Stage method() { return parallel::stage<&Half::forward>().with_loss<&Half::loss>(); }
  std::unique_ptr<Cluster> cluster;
  parallel::ActorMesh<Half> model;
  Generator generator{7};
  Tensor x = ops::randn({6, 4}, generator), y = ops::randn({6, 4}, generator);
};

template <class F>
void refused(const F& f, const std::string& part, ErrorKind kind = ErrorKind::invalid) {
  const auto error = error_of(f);
  CHECK(error.kind() == kind);
  CHECK_THAT(error.what(), Catch::Contains(part));
}

double step(World& world, parallel::Pipelines& train) {
  autograd::Context context(*world.cluster);
  return train.step(Value(world.x), Value(world.y)).loss;
}

}  // namespace

TEST_CASE("a rank of a stage that fails ends the step of all, by name, and the next one is as before") {
  for (const char* schedule : {"1f1b", "credits(2)"}) {
    World world({{"pp", 2}, {"tp", 2}}, 4);
    parallel::Pipelines train(world.cluster->here(), world.model, World::method(),
                              {.schedule = schedule, .micro_batches = 3});
    const double before = step(world, train);
    for (const auto& rank : world.model.actors()) {
      CAPTURE(schedule, rank.owner_name());
      rank.call<&Half::set>(true, false).get();
      refused([&] { step(world, train); }, "out of luck", ErrorKind::failed);
      rank.call<&Half::set>(false, false).get();
      CHECK(step(world, train) == before);
    }
    nothing_left(*world.cluster);
  }
}

namespace {

// The gradient goes by, and is told of.
struct Told : autograd::Function<Told> {
  struct Ctx : autograd::FunctionCtx {
    std::string* log = nullptr;
    const char* word = "";
  };
  static Tensor forward(Ctx& ctx, Tensor x, std::string* log, const char* word) {
    ctx.log = log, ctx.word = word;
    return x * 1;
  }
  static Tensors backward(Ctx& ctx, Tensors grads) {
    *ctx.log += ctx.word;
    return {grads[0], Tensor(), Tensor()};
  }
};

struct Telling : nn::ModuleActor<HalfNet> {
  explicit Telling(Mesh m) : ModuleActor(m["tp"]) {}
  Task<Tensor> forward(Tensor x) {
    const tp::Part part = net.down(ops::tanh(net.up(Told::apply(x, &log, "I "))));
    const Tensor y = co_await part;
    co_return y + Told::apply(bias, &log, "W ");
  }
  // Each position has the sum of all up to it.
  Task<std::tuple<Tensor, Tensors>> summing(Tensor x, Tensors before) {
    const tp::Part part = net.down(ops::tanh(net.up(x)));
    Tensor y = ops::cumsum(co_await part, 1);
    if (!before.empty()) y = y + before[0];
    const Tensor last = ops::narrow(y, 1, y.size(1) - 1, 1);
    co_return {y, {last}};
  }
  Tensor loss(Tensor x, Tensor y) { return ops::mse_loss(x, y); }
  std::string told() { return std::exchange(log, ""); }
  Tensor bias = zeros({4}).requires_grad_();
  std::string log;
  static constexpr auto remote =
      methods<&Telling::forward, &Telling::summing, &Telling::loss, &Telling::told>;
};

}  // namespace

TEST_CASE("ranks of a stage put off the gradients of their parameters, with the same bits") {
  const auto cluster = Cluster::in_process(5, hosting<Telling>());
  const Mesh mesh(*cluster, {{"pp", 2}, {"tp", 2}}, World::places(4));
  manual_seed(3);
  const auto model = parallel::spawn<Telling>(cluster->here(), mesh);
  const auto start = nn::remote_state_dict(model.actors()[0]).get();
  Generator generator{7};
  const Tensor x = ops::randn({8, 4}, generator), y = ops::randn({8, 4}, generator);
  std::vector<StateDict> states;
  for (const auto& actor : model.actors()) states.push_back(nn::remote_state_dict(actor).get());
  std::vector<std::pair<double, double>> want;
  for (const char* schedule : {"1f1b", "zb-h1", "zb-h2", "credits(2)", "credits(3)"}) {
    CAPTURE(schedule);
    for (size_t i = 0; i < states.size(); ++i) nn::load_remote_state_dict(model.actors()[i], states[i]).get();
    parallel::Pipelines train(cluster->here(), model,
                              parallel::stage<&Telling::forward>().with_loss<&Telling::loss>(),
                              {.schedule = schedule, .micro_batches = 4});
    optim::Distributed<optim::SGD> optimizer(model, {.lr = 0.1});
    std::vector<std::pair<double, double>> got;
    for (int step = 0; step < 3; ++step) {
      autograd::Context context(*cluster);
      const double loss = train.step(Value(x), Value(y)).loss;
      got.emplace_back(loss, optimizer.clip_grad_norm(context, 1e9));
      optimizer.step(context);
    }
    if (want.empty()) want = got;
    CHECK(got == want);
    for (size_t i = 0; i < model.actors().size(); ++i) {
      const std::string told = model.actors()[i].call<&Telling::told>().get();
      if (std::string(schedule) == "zb-h1")
        CHECK(told.substr(0, 16) == (i < 2 ? "W W W W W W W W " : "I I W I W I W W "));
      if (std::string(schedule) == "zb-h2" && i >= 2) CHECK(told.substr(0, 16) == "I I I W I W W W ");
    }
  }
  nothing_left(*cluster);
}

TEST_CASE("ranks of a stage carry what they need from slice to slice of a sequence") {
  const auto cluster = Cluster::in_process(5, hosting<Telling>());
  const Mesh mesh(*cluster, {{"pp", 2}, {"tp", 2}}, World::places(4));
  const auto model = parallel::spawn<Telling>(cluster->here(), mesh);
  Generator generator{7};
  const Tensor x = ops::randn({4, 6, 4}, generator), y = ops::randn({4, 6, 4}, generator);
  optim::Distributed<optim::SGD> optimizer(model, {.lr = 0.0});
  std::optional<std::pair<double, double>> want;
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
    for (const int slices : {2, 3, 6}) {
      CAPTURE(schedule, slices);
      parallel::Pipelines train(cluster->here(), model,
                                parallel::stage<&Telling::summing>().carries().with_loss<&Telling::loss>(),
                                {.schedule = schedule, .micro_batches = 2, .slices = slices});
      autograd::Context context(*cluster);
      const double loss = train.step(Value(x), Value(y)).loss, norm = optimizer.clip_grad_norm(context, 1e9);
      optimizer.step(context);
      if (!want) want = {loss, norm};
      CHECK(loss == Approx(want->first).epsilon(1e-5));
      CHECK(norm == Approx(want->second).epsilon(1e-5));
    }
  nothing_left(*cluster);
}

TEST_CASE("stages compute in the halves of whoever asks for the step, and their gradients are float32") {
  using Names = std::vector<std::string>;
  for (const char* schedule : {"1f1b", "gpipe", "zb-h1", "credits(2)"})
    for (const bool cut : {false, true}) {
      CAPTURE(schedule, cut);
      World world({{"pp", 2}, {"tp", cut ? 2U : 1U}}, cut ? 4 : 2);
      parallel::Pipelines train(world.cluster->here(), world.model, World::method(),
                                {.schedule = schedule, .micro_batches = 3});
      optim::Distributed<optim::SGD> optimizer(world.model, {.lr = 0.0});
      const auto products = [&](const Names& expected) {
        for (const auto& rank : world.model.actors()) CHECK(rank.call<&Half::products>().get() == expected);
      };
      const double whole = step(world, train);
      products({"float32"});
      {
        const AutocastGuard amp(bfloat16);
        autograd::Context context(*world.cluster);
        CHECK(train.step(Value(world.x), Value(world.y)).loss == Approx(whole).epsilon(0.02));
        products({"bfloat16"});
        CHECK(optimizer.clip_grad_norm(context, 1e9) > 0);
        CHECK_NOTHROW(optimizer.step(context));  // which refuses gradients of other dtypes
        train.forward(Value(world.x));
        products({"bfloat16"});
      }
      CHECK(step(world, train) == whole);
      products({"float32"});
    }
}

TEST_CASE("ranks whose losses differ are named") {
  World world({{"pp", 2}, {"tp", 2}}, 4);
  parallel::Pipelines train(world.cluster->here(), world.model, World::method(), {.micro_batches = 2});
  world.model.actors()[3].call<&Half::set>(false, true).get();
  refused([&] { step(world, train); }, "at (tp 1)", ErrorKind::failed);
}

TEST_CASE("pipelines give outputs of all replicas in the order of the rows") {
  World world({{"dp", 2}, {"pp", 2}, {"tp", 1}}, 4);
  parallel::Pipelines train(world.cluster->here(), world.model, World::method(), {.micro_batches = 2});
  step(world, train);  // replicas have the values of the first from here on
  Tensors parts;
  for (const Value& part : train.forward(Value(world.x))) parts.push_back(*part.get_if<Tensor>());
  const NoGradGuard off;
  Tensor whole = world.x;
  for (size_t s = 0; s < 2; ++s)
    whole = world.model.at("dp", 0).at("tp", 0).at("pp", s).only().call<&Half::forward>(whole).get();
  CHECK(ops::allclose(ops::cat(parts, 0), whole));
}

TEST_CASE("replicas get rows in proportion, and learn from the mean over all rows") {
  std::vector<double> losses[2];
  for (const bool in_proportion : {false, true}) {
    manual_seed(3);
    World world({{"dp", 2}, {"pp", 2}, {"tp", 1}}, 4);
    parallel::PipelineOptions options{.micro_batches = 2};
    if (in_proportion) options.rows = {2, 1};
    parallel::Pipelines train(world.cluster->here(), world.model, World::method(), options);
    optim::Distributed<optim::Adam> optimizer(world.model, {.lr = 0.05});
    for (int k = 0; k < 4; ++k) {
      autograd::Context context(*world.cluster);
      losses[in_proportion].push_back(train.step(Value(world.x), Value(world.y)).loss);
      optimizer.step(context);
    }
    if (!in_proportion) continue;
    const std::vector<Value> outputs = train.forward(Value(world.x));
    REQUIRE(outputs.size() == 4);
    CHECK(outputs[0].get_if<Tensor>()->size(0) == 2);  // of 4 rows
    CHECK(outputs[2].get_if<Tensor>()->size(0) == 1);  // of 2
    autograd::Context context(*world.cluster);
    refused([&] { train.step(Value(world.x.slice(0, 0, 1)), Value(world.y.slice(0, 0, 1))); }, "1 rows");
  }
  for (size_t k = 0; k < 4; ++k) CHECK(losses[1][k] == Approx(losses[0][k]).epsilon(1e-4));
}

TEST_CASE("what pipelines over a mesh cannot do is refused before anything is sent") {
  World world({{"dp", 2}, {"pp", 1}, {"tp", 2}}, 4);
  const Here here = world.cluster->here();
  const auto make = [&](parallel::PipelineOptions options) {
    parallel::Pipelines(here, world.model, World::method(), std::move(options));
  };
  refused([&] { make({.schedule = "auto"}); }, "same schedule");
  refused([&] { make({.rows = {1, 2, 3}}); }, "\"rows\" has 3 numbers for 2 replicas");
  refused([&] { make({.rows = {1, 0}}); }, "\"rows\" has a 0");
  refused([&] { make({.checkpoint = parallel::Checkpoint::always}); }, "Checkpoint::never");
  refused([&] { make({.replicas = {Group()}}); }, "follow from the mesh");
  refused([&] { parallel::Pipelines(here, world.model, World::method(), {}, {.stages = "stages"}); },
          "no dimension stages");
  parallel::Pipelines train(here, world.model, World::method());
  refused([&] { train.step(Value(world.x), Value(world.y)); }, "autograd::Context");
  autograd::Context context(*world.cluster);
  refused([&] { train.step(Value(world.x.slice(0, 0, 1)), Value(world.y.slice(0, 0, 1))); },
          "1 rows for 2 replicas");
  refused([&] { train.step(Value(world.x), Value(world.y), {.weights = {1, 2, 3}}); },
          "3 weights for 2 replicas");
  refused([&] { train.step(Value(world.x), Value(world.y), {.weights = {0, 0}}); }, "add up to 0");
  CHECK(train.step(Value(world.x), Value(world.y)).weight == 6);
}

namespace {

// Of which nothing waits.
struct PlainNet : nn::Module {
  explicit PlainNet(const Mesh& mesh) : last(mesh.coordinate("pp") + 1 == mesh.size("pp")) {}
  Tensor forward(const Tensor& x) { return last ? linear(x) : ops::tanh(linear(x)); }
  Tensor loss(const Tensor& y, const Tensor& target) { return ops::mse_loss(y, target); }
  void members(nn::Members& m) override { m("linear", linear); }
  nn::Linear linear{4, 4};
  const bool last;
};
using PlainStage = parallel::ModuleStage<PlainNet>;

}  // namespace

TEST_CASE("modules are stages by their forward and loss") {
  manual_seed(3);
  const auto cluster = Cluster::in_process(5, hosting<PlainStage>());
  const Mesh mesh(*cluster, {{"dp", 2}, {"pp", 2}}, {1, 2, 3, 4});
  const auto model = parallel::spawn<PlainStage>(cluster->here(), mesh);
  parallel::Pipelines train(cluster->here(), model, {.micro_batches = 2});
  optim::Distributed<optim::SGD> optimizer(model, {.lr = 0.5});
  const Tensor x = ops::sin(arange(24).to(float32)).reshape({6, 4}), y = ops::cos(x);
  double first = 0, loss = 0;
  for (int i = 0; i < 20; ++i) {
    autograd::Context context(*cluster);
    loss = train.step(Value(x), Value(y)).loss;
    optimizer.step(context);
    if (!i) first = loss;
  }
  CHECK(loss < 0.5 * first);
  const NoGradGuard off;
  Tensor out = x;
  for (size_t s = 0; s < 2; ++s)
    out = model.at("dp", 1).at("pp", s).only().call<&PlainStage::forward>(out).get();
  autograd::Context context(*cluster);
  CHECK(ops::mse_loss(out, y).item() == Approx(train.step(Value(x), Value(y)).loss));
}
