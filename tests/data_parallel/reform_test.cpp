// Replicas that come and go between two steps.
#include <catch2/catch.hpp>
#include <cmath>

#include "core/codec/keep.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "troupe/replicas.h"

using namespace troupe;
using namespace troupe::parallel;
using Catch::Contains;
using testing::error_of;
using testing::nothing_left;

namespace {

// All that a forward pass changes: dropout, running means, a Keep that the loss depends on.
struct Layers : nn::Layer {
  nn::Linear hidden{6, 8}, out{8, 3};
  nn::BatchNorm2d norm{2};
  nn::Dropout drop{0.3};
  Tensor forward(const Tensor& x) override {
    const Tensor h = norm(hidden(x).reshape({x.size(0), 2, 2, 2})).reshape({x.size(0), 8});
    return out(drop(relu(h)));
  }
  void members(nn::Members& m) override {
    m("hidden", hidden), m("norm", norm), m("drop", drop), m("out", out);
  }
};

struct Changing : nn::ModuleActor<Layers> {
  Tensor loss(Tensor x, Tensor y) {
    ++calls;
    return cross_entropy(net(x), y) * (1.0 + 1e-2 * double(calls % 7));
  }
  void freeze() { net.hidden.weight.requires_grad_(false); }
  int64_t trained() { return int64_t(net.hidden.weight.requires_grad()); }
  int64_t calls = 0;
  Keep keep{"calls", calls};
  static constexpr auto remote = methods<&Changing::loss, &Changing::freeze, &Changing::trained>;
};

Tensor wave(double start) {
  std::vector<float> v;
  for (int i = 0; i < 72; ++i) v.push_back(float(std::sin(start + 0.7 * i)));
  return tensor(v, float32).reshape({12, 6});
}

using Net = DataParallel<Changing>;
using Optimizer = optim::Distributed<optim::AdamW>;

struct Training {
  std::unique_ptr<Cluster> cluster = Cluster::in_process(5, hosting<Changing>());
  std::optional<Net> net;
  std::optional<Optimizer> optimizer;
  std::vector<double> numbers;  // losses and norms
  explicit Training(Shard shard = Shard::none) {
    manual_seed(3);
    net.emplace(cluster->here(), Group(*cluster, {"w1", "w2", "w3"}),
                DataParallelOptions{.shard = shard, .spare_pieces = 1});
    optim::AdamW::Options all{.lr = 1e-2, .weight_decay = 0.1}, plain = all;
    plain.weight_decay = 0;
    optimizer.emplace(*net, all, std::vector<Optimizer::Group>{{{"*.bias"}, plain}});
  }
  void step() {
    const auto i = double(numbers.size());
    const Tensor x = wave(i);
    const Tensor y = tensor(std::vector<int64_t>{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}, int64);
    autograd::Context context(*cluster);
    const Tensor loss = net->mean<&Changing::loss>(split(x), split(y)).get();
    context.backward(loss);
    numbers.push_back(optimizer->clip_grad_norm(context, 0.5));
    optimizer->step(context);
    numbers.push_back(loss.item());
  }
  StateDict final() {
    StateDict all = net->state_dict().get();
    const auto states = optimizer->state();
    for (size_t i = 0; i < states.size(); ++i)
      for (const auto& [name, t] : states[i]) all[std::to_string(i) + name] = t;
    return all;
  }
};

void check_same(Training& a, Training& b) {
  CHECK(a.numbers == b.numbers);
  const StateDict x = a.final(), y = b.final();
  REQUIRE(x.size() == y.size());
  for (const auto& [name, t] : x) {
    INFO(name);
    CHECK(bit_equal(t, y.at(name)));
  }
}

}  // namespace

TEST_CASE("a replica in the place of another trains on with the bits of the one that it replaces") {
  Training undisturbed, moved;
  for (int i = 0; i < 8; ++i) undisturbed.step();
  const size_t rank = GENERATE(0, 1, 2);
  CAPTURE(rank);
  for (int i = 0; i < 3; ++i) moved.step();
  const std::string path = moved.net->members()[rank].handle()->path();
  moved.net->replace(rank, "w4");
  CHECK(moved.net->members()[rank].handle()->path() == path);
  CHECK(moved.net->replicas()[rank].owner_name() == "w4");
  for (int i = 0; i < 2; ++i) moved.step();
  moved.net->replace(rank == 1 ? 2 : 1, "w0");
  for (int i = 0; i < 3; ++i) moved.step();
  check_same(undisturbed, moved);
  nothing_left(*moved.cluster);
}

TEST_CASE("a replica in the place of another has its pieces of the state") {
  const Shard shard = GENERATE(Shard::state, Shard::gradients);
  CAPTURE(word(shard));
  Training undisturbed(shard), moved(shard), alone;
  for (int i = 0; i < 8; ++i) undisturbed.step(), alone.step();
  for (int i = 0; i < 3; ++i) moved.step();
  moved.net->replace(1, "w4");
  moved.step();
  moved.net->replace(2, "w0");
  moved.net->replace(0, "w2");
  moved.optimizer->load_state(moved.optimizer->state());  // spares are not of these
  moved.step();
  moved.net->replace(1, "w1");
  for (int i = 0; i < 3; ++i) moved.step();
  check_same(undisturbed, moved);
  const auto state_of_all = [](Training& t) {
    int64_t bytes = 0;
    for (const RankBytes& b : t.net->report().get().replicas) bytes += b.state;
    return bytes;
  };
  CHECK(3 * state_of_all(moved) == 2 * state_of_all(alone));
  nothing_left(*moved.cluster);
}

TEST_CASE("a set that shrinks and grows stays equal, and its norms are those of whoever is there") {
  Training training;
  for (int i = 0; i < 2; ++i) training.step();
  training.net->shrink(0);
  REQUIRE(training.net->size() == 2);
  training.step();
  CHECK(training.numbers[training.numbers.size() - 2] > 0);  // of the norm
  CHECK(training.optimizer->state().size() == 2);
  training.net->grow("w4");
  REQUIRE(training.net->size() == 3);
  for (int i = 0; i < 2; ++i) training.step();
  const auto states = training.optimizer->state();
  REQUIRE(states.size() == 3);
  for (const size_t other : {1, 2})
    for (const auto& [name, t] : states[0]) CHECK(bit_equal(t, states[other].at(name)));
  const auto one = training.optimizer->state_of(2);
  for (const auto& [name, t] : states[2]) CHECK(bit_equal(t, one.at(name)));
  const auto by_group = training.optimizer->parameters_by_group();
  REQUIRE(by_group.size() == 2);
  CHECK_THAT(by_group[1].back(), Contains("on w4"));
  nothing_left(*training.cluster);
}

TEST_CASE("the same history of a set gives the same bits") {
  Training a, b;
  for (Training* t : {&a, &b}) {
    t->step();
    t->net->shrink(1);
    t->step();
    t->net->grow("w0");
    t->step();
  }
  check_same(a, b);
}

TEST_CASE("a newcomer trains what the others train") {
  Training training;
  for (const auto& r : training.net->replicas()) r.call<&Changing::freeze>().get();
  Net frozen(training.cluster->here(), Group(*training.cluster, {"w1", "w2"}));
  for (const auto& r : frozen.replicas()) r.call<&Changing::freeze>().get();
  Optimizer optimizer(frozen, {.lr = 0.1});
  frozen.replace(0, "w3");
  CHECK(frozen.replicas()[0].call<&Changing::trained>().get() == 0);
}

TEST_CASE("a change of replicas that cannot be is refused, and they train on") {
  Training training, undisturbed;
  auto& net = *training.net;
  for (Training* t : {&training, &undisturbed}) t->step();
  CHECK_THAT(error_of([&] { net.replace(3, "w4"); }).message(), Contains("replace(3) of 3 replicas"));
  CHECK_THAT(error_of([&] { net.shrink(7); }).message(), Contains("ranks count from 0"));
  CHECK_THAT(error_of([&] { net.grow("w9"); }).message(), Contains("w9") && Contains("w0"));
  {
    const autograd::Context context(*training.cluster);
    const autograd::Context::Guard guard(context);
    CHECK_THAT(error_of([&] { net.shrink(1); }).message(), Contains("between two steps"));
  }
  {
    optim::Distributed<optim::SGD> some({AnyRef(net.replicas()[0])}, {.lr = 0.1});
    CHECK_THAT(error_of([&] { net.replace(0, "w4"); }).message(), Contains("has 1 of 3 replicas"));
  }
  Net given(std::vector<RRef<Changing>>{training.cluster->spawn<Changing>("w1")});
  CHECK_THAT(error_of([&] { given.grow("w2"); }).message(), Contains("were given as references"));
  CHECK_THAT(error_of([&] { given.shrink(0); }).message(), Contains("one has to stay"));
  Net divided(training.cluster->here(), Group(*training.cluster, {"w1", "w2"}),
              DataParallelOptions{.shard = Shard::state});
  CHECK_THAT(error_of([&] { divided.shrink(0); }).message(), Contains("Shard::none"));
  Net spared(training.cluster->here(), Group(*training.cluster, {"w1", "w2"}),
             DataParallelOptions{.shard = Shard::state, .spare_pieces = 1});
  CHECK_THAT(error_of([&] { spared.grow("w3"); }).message(), Contains("stay as many"));
  CHECK_THAT(error_of([&] {
               Net wrong(training.cluster->here(), Group(*training.cluster, {"w1"}),
                         DataParallelOptions{.spare_pieces = 2});
             }).message(),
             Contains("spare_pieces is 2: expected 0 or 1"));
  for (Training* t : {&training, &undisturbed}) t->step();
  check_same(training, undisturbed);
}
