// Workers of Pipelines that go between two steps, and others in their places.
#include <catch2/catch.hpp>

#include "core/codec/keep.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "troupe/pipeline.h"
#include "troupe/tensor_parallel.h"

using namespace troupe;
using Catch::Contains;
using testing::error_of;
using testing::nothing_left;

namespace {

// All that a forward pass changes: dropout, running means, a Keep that the loss depends on; and what ranks
// meet in, along each dimension of the mesh.
struct Layers : nn::Module {
  Layers(const Mesh& mesh, double p) : tp(mesh["tp"]), first(tp, 4, 8), second(tp, 8, 4), drop(p) {}
  Task<Tensor> forward(Tensor x) {
    const tp::Part part = second(relu(first(x)));
    const Tensor h = co_await part;
    co_return norm(drop(h).reshape({x.size(0), 2, 2, 1})).reshape({x.size(0), 4});
  }
  void members(nn::Members& m) override {
    m("first", first), m("second", second), m("norm", norm), m("drop", drop);
  }
  Group tp;
  tp::ColumnLinear first;
  tp::RowLinear second;
  nn::BatchNorm2d norm{2};
  nn::Dropout drop;
};

struct Rank : nn::ModuleActor<Layers> {
  Rank(const Mesh& m, double p) : ModuleActor(m, p), mesh(m) {}
  Task<Tensor> forward(Tensor x) {
    ++calls;
    co_return co_await net.forward(x) * (1.0 + 1e-2 * double(calls % 7));
  }
  Tensor loss(Tensor x, Tensor y) { return ops::mse_loss(x, y); }
  Task<double> replicas() {  // meets those of the other replicas
    const Future<Tensor> sum = mesh["dp"].all_reduce(ones({1}));
    co_return (co_await sum).item();
  }
  Mesh mesh;
  int64_t calls = 0;
  Keep keep{"calls", calls};
  static constexpr auto remote = methods<&Rank::forward, &Rank::loss, &Rank::replicas>;
};

using Adam = optim::Distributed<optim::AdamW>;

struct Training {
  explicit Training(std::vector<MeshDim> dims, const parallel::PipelineOptions& options = {},
                    double p = 0.3) {
    int count = 1;
    for (const MeshDim& d : dims) count *= static_cast<int>(d.size / d.turns);
    cluster = Cluster::in_process(count + 3, hosting<Rank>());
    std::vector<Place> places;
    for (int i = 1; i <= count; ++i) places.emplace_back(i);
    manual_seed(5);
    model.emplace(parallel::spawn<Rank>(cluster->here(), Mesh(*cluster, std::move(dims), places), p));
    auto method = parallel::stage<&Rank::forward>();
    if (!options.loss) method = method.with_loss<&Rank::loss>();
    train.emplace(cluster->here(), *model, method, options);
    optimizer.emplace(*model, optim::AdamW::Options{.lr = 1e-2, .weight_decay = 0.1});
  }
  void step() {
    const Tensor x = ops::randn({8, 4}), y = ops::randn({8, 4});  // from the program's own random numbers
    autograd::Context context(*cluster);
    numbers.push_back(train->step(Value(x), Value(y)).loss);
    numbers.push_back(optimizer->clip_grad_norm(context, 0.5));
    optimizer->step(context);
  }
  std::vector<StateDict> state() {
    std::vector<StateDict> all;
    for (const auto& actor : model->actors()) all.push_back(nn::remote_state_dict(actor).get());
    for (auto& of_actor : optimizer->state()) all.push_back(std::move(of_actor));
    return all;
  }
  std::unique_ptr<Cluster> cluster;
  std::optional<parallel::ActorMesh<Rank>> model;
  std::optional<parallel::Pipelines> train;
  std::optional<Adam> optimizer;
  std::vector<double> numbers;  // losses and norms
};

Tensor error(const Value& output, const Value& target) {
  return ops::mse_loss(internal::from_value<Tensor>(Value(output)),
                       internal::from_value<Tensor>(Value(target)));
}

struct Case {
  std::vector<MeshDim> dims;
  parallel::PipelineOptions options = {};
};

void check_same(Training& a, Training& b) {
  CHECK(a.numbers == b.numbers);
  const auto x = a.state(), y = b.state();
  REQUIRE(x.size() == y.size());
  for (size_t i = 0; i < x.size(); ++i) {
    REQUIRE(x[i].size() == y[i].size());
    for (const auto& [name, t] : x[i]) {
      CAPTURE(i, name);
      CHECK(bit_equal(t, y[i].at(name)));
    }
  }
}

}  // namespace

TEST_CASE("pipelines train on with the same bits when workers go and others come in their places") {
  const Case one = GENERATE(
      Case{{{"dp", 2}, {"pp", 2}, {"tp", 1}}}, Case{{{"dp", 2}, {"pp", 2}, {"tp", 2}}},
      Case{{{"pp", 2}, {"dp", 3}, {"tp", 1}}, {.schedule = "zb-h1", .micro_batches = 2}},
      Case{{{"tp", 2}, {"pp", 1}, {"dp", 2}}}, Case{{{"dp", 2}, {"pp", 2}, {"tp", 1}}, {.loss = error}},
      Case{{{"dp", 2}, {"pp", 4, 2}, {"tp", 1}}, {.schedule = "interleaved", .chunks = 2}});
  Training calm(one.dims, one.options), moved(one.dims, one.options);
  manual_seed(8);
  for (int i = 0; i < 6; ++i) calm.step();
  manual_seed(8);
  const auto last = moved.model->at("dp", 1);
  std::vector<std::string> paths;
  for (const AnyRef& a : moved.train->members()) paths.push_back(a.handle()->path());
  moved.step(), moved.step();
  const auto n = static_cast<int>(MeshPoints(one.dims).members().size());
  moved.train->replace(2, n + 1);
  moved.step();
  moved.train->replace(1, n + 2);
  moved.train->replace(n, 2);
  for (int i = 0; i < 3; ++i) moved.step();
  check_same(calm, moved);
  CHECK(moved.train->members() == std::vector<AnyRef>(*moved.model));
  CHECK(last.actors() == moved.model->at("dp", 1).actors());
  for (size_t p = 0; p < paths.size(); ++p) CHECK(moved.train->members()[p].handle()->path() == paths[p]);
  for (const auto& sum : moved.model->call<&Rank::replicas>())
    CHECK(sum.get() == double(moved.train->replicas()));
  nothing_left(*moved.cluster);
}

TEST_CASE("pipelines that lose a replica train as those of fewer, and one that comes back is as the others") {
  Training two({{"pp", 2}, {"dp", 2}, {"tp", 1}}, {}, 0), three({{"pp", 2}, {"dp", 3}, {"tp", 1}}, {}, 0);
  auto& train = *three.train;
  const auto last = three.model->at("dp", 2);
  std::vector<std::string> paths;
  for (const size_t p : {1, 4}) paths.push_back(train.members()[p].handle()->path());
  train.shrink(1);
  CHECK(train.replicas() == 2);
  CHECK(three.model->points().str() == "pp 2 x dp 2 x tp 1");
  CHECK(train.members()[1].owner_name() == "w3");
  CHECK(last.actors().empty());  // there is no such replica any more
  CHECK(three.model->at("dp", 1).actors().size() == 2);
  manual_seed(8);
  for (int i = 0; i < 3; ++i) two.step();
  manual_seed(8);
  for (int i = 0; i < 3; ++i) three.step();
  check_same(two, three);

  auto seats = train.seats();
  seats.insert(seats.begin() + 1, {.stays = {}, .worker = "w7", .path = paths[0], .own = {}});
  CHECK_THAT(error_of([&] { train.reform(seats); }).what(), Contains("2 actors come and go together"));
  seats.insert(seats.begin() + 4, {.stays = {}, .worker = "w8", .path = paths[1], .own = {}});
  train.reform(seats);
  CHECK(train.members()[4].owner_name() == "w8");
  CHECK(last.actors()[1] == train.members()[5]);
  three.step();
  for (const auto& sum : three.model->call<&Rank::replicas>()) CHECK(sum.get() == 3);
  const auto states = three.state();
  for (const size_t p : {1, 2, 4, 5})
    for (const auto& [name, t] : states[p])
      if (!name.starts_with("norm.running")) CHECK(bit_equal(t, states[p - p % 3].at(name)));

  train.shrink(2), train.shrink(0);
  three.step();  // of one, which nobody joins
  CHECK_THAT(error_of([&] { train.shrink(0); }).what(), Contains("one has to stay"));
  nothing_left(*three.cluster);
}

TEST_CASE("an actor whose mesh has others by now refuses calls") {
  Training training({{"dp", 2}, {"pp", 1}, {"tp", 1}});
  const RRef<Rank> before = training.model->actors()[0];
  training.step();
  training.train->replace("w2", "w3");
  const Error error = error_of([&] { (void)before.call<&Rank::loss>(ones({1}), ones({1})).get(); });
  CHECK_THAT(error.what(), Contains("has ended: others have come in the places of all actors of its mesh"));
  CHECK(training.model->actors()[0].owner_name() == "w1");
  training.step();
  nothing_left(*training.cluster);
}

TEST_CASE("what cannot come in the place of an actor of pipelines leaves all as it was") {
  Training training({{"dp", 2}, {"pp", 2}, {"tp", 1}}), calm({{"dp", 2}, {"pp", 2}, {"tp", 1}});
  manual_seed(8);
  calm.step(), calm.step();
  manual_seed(8);
  training.step();
  const auto refused = [&](auto f, const char* part) {
    const Error error = error_of(f);
    CHECK_THAT(error.what(), Contains(part));
  };
  auto& train = *training.train;
  refused([&] { train.replace("w6", "w5"); }, "worker w6 has no actor of this mesh (dp 2 x pp 2 x tp 1)");
  refused([&] { train.replace("w2", "w9"); }, "w9");
  refused([&] { train.replace("w2", "w3"); }, "twice");
  refused(
      [&] {
        autograd::Context context(*training.cluster);
        train.replace("w2", "w5");
      },
      "an autograd::Context is active here: end it first");
  auto seats = train.seats();
  seats.pop_back();
  refused([&] { train.reform(seats); },
          "2 actors come and go together, those of a replica (dp 2 x pp 2 x tp 1)");
  training.step();
  check_same(calm, training);

  Training chunked({{"dp", 2}, {"pp", 4, 2}, {"tp", 1}}, {.schedule = "interleaved", .chunks = 2});
  auto apart = chunked.train->seats();
  apart[0] = {.stays = {}, .worker = "w5", .path = chunked.train->members()[0].handle()->path(), .own = {}};
  refused([&] { chunked.train->reform(apart); },
          "the stages of one worker go to another one together, and not to w5 and w1");
  Training single({{"dp", 1}, {"pp", 2}, {"tp", 1}});
  refused([&] { single.train->replace("w1", "w3"); }, "with two replicas at least and Shard::none");
  Training cut({{"dp", 2}, {"pp", 1}, {"tp", 1}}, {.shard = parallel::Shard::gradients});
  refused([&] { cut.train->replace("w1", "w3"); }, "with two replicas at least and Shard::none");
  nothing_left(*training.cluster);
}
