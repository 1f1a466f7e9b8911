// Replicas that one program trains as one model.
#include "parallel/data/data_parallel.h"

#include <catch2/catch.hpp>
#include <thread>

#include "actors/worker/worker.h"
#include "autograd/hooks.h"
#include "tests/support/error_of.h"
#include "tests/support/eventually.h"
#include "tests/support/near.h"
#include "tests/support/nothing_left.h"
#include "troupe/replicas.h"

using namespace troupe;
using namespace troupe::parallel;
using Catch::Contains;
using testing::difference;
using testing::error_of;
using testing::nothing_left;

namespace {

Tensor wave(const Shape& shape, double start) {
  std::vector<double> v;
  for (int64_t i = 0; i < shape.numel(); ++i) v.push_back(0.5 * std::sin(start + 0.7 * double(i)));
  return tensor(v, float64).reshape(shape);
}

struct Parts : nn::Layer {
  Parts() {
    hidden.load_state_dict({{"weight", wave({5, 3}, 1)}, {"bias", wave({5}, 2)}});
    out.load_state_dict({{"weight", wave({2, 5}, 3)}, {"bias", wave({2}, 4)}});
  }
  nn::Linear hidden{3, 5, true, float64}, out{5, 2, true, float64};
  Tensor forward(const Tensor& x) override { return out(ops::tanh(hidden(x))); }
  void members(nn::Members& m) override { m("hidden", hidden), m("out", out); }
};

struct Net : nn::ModuleActor<Parts> {
  // Only the first replica, which is on w0, starts with these values.
  explicit Net(double scale) {
    if (frame().worker->name() != "w0")
      for (auto& [name, p] : net.named_parameters()) p.detach().copy_(p.detach() * scale);
  }
  Tensor forward(Tensor x) { return net(x); }
  Tensor loss(Tensor x, Tensor y) {
    Tensor l = mse_loss(net(x), y);
    if (fails) {
      l = l * 1;
      autograd::register_hook(l, [](const Tensor&) -> Tensor {
        throw_error(ErrorKind::failed, "[net] out of paper");
      }).keep();
    }
    return l;
  }
  void fail(bool on) { fails = on; }
  std::vector<Tensor> gradients() {
    std::vector<Tensor> all;
    for (const Tensor& p : parameters()) all.push_back(autograd::context_gradient(p));
    return all;
  }
  bool fails = false;
  static constexpr auto remote = methods<&Net::forward, &Net::loss, &Net::fail, &Net::gradients>;
};

struct World {
  std::unique_ptr<Cluster> cluster = Cluster::in_process(4, hosting<Net>());
  std::optional<DataParallel<Net>> net;
  Parts whole;
  explicit World(size_t n) {
    const auto workers = cluster->workers();
    net.emplace(cluster->here(), Group(*cluster, {workers.begin(), workers.begin() + std::ptrdiff_t(n)}),
                1.5);
    net->ready().get();
  }
  void check_gradients() {
    const Tensors want = whole.parameters();
    for (const auto& r : net->replicas()) {
      const auto got = r.call<&Net::gradients>().get(),
                 first = net->replicas()[0].call<&Net::gradients>().get();
      for (size_t i = 0; i < want.size(); ++i) {
        REQUIRE(got[i].defined());
        CHECK(bit_equal(got[i], first[i]));
        CHECK(difference(got[i], want[i].grad(), 1e-9, 1e-12) == "");
      }
    }
  }
  void at_rest() {
    nothing_left(*cluster);
    for (const auto& w : cluster->workers()) CHECK(cluster->metrics(w)["collectives"] == 0);
  }
};

}  // namespace

TEST_CASE("rows may be divided by shares, and the gradients are of the mean over all") {
  World world(3);
  const Tensor x = wave({8, 3}, 2), y = wave({8, 2}, 1);
  const std::vector<int64_t> shares{4, 2, 1};
  const Split parts = split(x, shares);
  CHECK(parts.rows(0, 3) == 5);
  CHECK(parts.rows(1, 3) == 2);
  CHECK(parts.rows(2, 3) == 1);
  const Tensor want = mse_loss(world.whole(x), y);
  autograd::backward(want);
  {
    autograd::Context step(*world.cluster);
    const Tensor loss = world.net->mean<&Net::loss>(split(x, shares), split(y, shares)).get();
    CHECK(loss.item() == Approx(want.item()).epsilon(1e-12));
    step.backward(loss);
    world.check_gradients();
  }
  CHECK_THROWS_WITH(split(x, std::vector<int64_t>{100, 1, 1}), Catch::Contains("replica 1 would have none"));
  CHECK_THROWS_WITH(split(x, std::vector<int64_t>{1, 0}), Catch::Contains("a share of 0"));
  world.at_rest();
}

TEST_CASE("replicas train as one process on the whole batch, with the same clipped steps") {
  const size_t n = GENERATE(1, 2, 4);
  World world(n);
  auto& net = *world.net;
  optim::Distributed<optim::Adam> optimizer(net, {.lr = 0.05});
  optim::Adam local(world.whole.parameters(), {.lr = 0.05});
  for (const int64_t rows : {8, 5, 2, 1, 7}) {  // with fewer rows than replicas, some have none
    const Tensor x = wave({rows, 3}, double(rows)), y = wave({rows, 2}, 1);
    local.zero_grad();
    const Tensor want = mse_loss(world.whole(x), y);
    autograd::backward(want);
    {
      autograd::Context step(*world.cluster);
      const Tensor loss = net.mean<&Net::loss>(split(x), split(y)).get();
      CHECK(loss.item() == Approx(want.item()).epsilon(1e-12));
      step.backward(loss);
      world.check_gradients();
      const double norm = optim::clip_grad_norm_(world.whole.parameters(), 0.1);
      CHECK(optimizer.clip_grad_norm(step, 0.1) == Approx(norm).epsilon(1e-9));
      optimizer.step(step);
    }
    local.step();
    world.at_rest();
  }
  const auto first = nn::remote_state_dict(net.replicas()[0]).get(), want = world.whole.state_dict();
  for (const auto& r : net.replicas())
    for (const auto& [name, value] : nn::remote_state_dict(r).get()) {
      CHECK(bit_equal(value, first.at(name)));
      CHECK(difference(value, want.at(name), 1e-9, 1e-12) == "");
    }
}

TEST_CASE("the outputs of replicas come in order, and a loss of theirs at the caller goes back to all") {
  World world(4);
  auto& net = *world.net;
  for (const int64_t rows : {9, 3}) {
    const Tensor x = wave({rows, 3}, 1), y = wave({rows, 2}, 2);
    world.whole.zero_grad();
    const Tensor want = world.whole(x);
    autograd::backward(mse_loss(want, y));
    autograd::Context step(*world.cluster);
    const Tensor out = net(x).get();
    CHECK(difference(out, want.detach(), 1e-12, 1e-14) == "");
    step.backward(mse_loss(out, y));
    world.check_gradients();
  }
  CHECK(difference(net(wave({5, 3}, 1)).get(), world.whole(wave({5, 3}, 1)).detach(), 1e-12, 1e-14) == "");
  world.at_rest();
}

TEST_CASE("forward passes of one pass, passes of one context, and contexts at once are each right") {
  World world(3);
  auto& net = *world.net;
  const Tensor a = wave({4, 3}, 1), b = wave({2, 3}, 5), ya = wave({4, 2}, 2), yb = wave({2, 2}, 3);
  const auto local = [&](double times) {
    autograd::backward((mse_loss(world.whole(a), ya) + mse_loss(world.whole(b), yb)) * times);
  };
  {
    autograd::Context step(*world.cluster);
    const auto both = [&] {
      return net.mean<&Net::loss>(split(a), split(ya)).get() +
             net.mean<&Net::loss>(split(b), split(yb)).get();
    };
    step.backward(both());
    local(1);
    world.check_gradients();
    step.backward(both());
    local(1);
    world.check_gradients();
    {
      const Accumulation later = net.accumulate();
      step.backward(both());
      world.check_gradients();  // unchanged: the sums are with the replicas
    }
    step.backward(both());
    local(2);
    world.check_gradients();
  }
  world.at_rest();
  const auto train = [&](const Tensor& x, const Tensor& y) {
    for (int i = 0; i < 10; ++i) {
      autograd::Context step(*world.cluster);
      step.backward(net.mean<&Net::loss>(split(x), split(y)).get());
      Parts same;
      autograd::backward(mse_loss(same(x), y));
      const auto got = net.replicas()[2].call<&Net::gradients>().get();
      const Tensors want = same.parameters();
      for (size_t k = 0; k < want.size(); ++k)
        if (troupe::difference(got[k], want[k].grad(), 1e-9, 1e-12) != "")
          FAIL("another context's gradients");
    }
  };
  std::thread other([&] { train(a, ya); });
  train(b, yb);
  other.join();
  world.at_rest();
}

TEST_CASE("a replica that fails fails the pass, and the next one is as if there had been none") {
  World world(3);
  auto& net = *world.net;
  const Tensor x = wave({6, 3}, 1), y = wave({6, 2}, 2);
  autograd::backward(mse_loss(world.whole(x), y));
  {
    autograd::Context step(*world.cluster);
    step.backward(net.mean<&Net::loss>(split(x), split(y)).get());
    world.check_gradients();
    net.replicas()[1].call<&Net::fail>(true).get();
    const Tensor loss = net.mean<&Net::loss>(split(x), split(y)).get();
    CHECK_THAT(error_of([&] { step.backward(loss); }).what(), Contains("out of paper"));
    world.check_gradients();
    net.replicas()[1].call<&Net::fail>(false).get();
    step.backward(net.mean<&Net::loss>(split(x), split(y)).get());
    autograd::backward(mse_loss(world.whole(x), y));
    world.check_gradients();
  }
  world.at_rest();
  CHECK_THAT(error_of([&] { (void)net(wave({0, 3}, 1)); }).what(), Contains("the batch has no rows"));
  CHECK_THAT(error_of([&] { (void)net.mean<&Net::loss>(split(x), split(wave({5, 2}, 1))); }).what(),
             Contains("replica 2 has 2 rows of one argument and 1 of another"));
  CHECK_THAT(error_of([&] { net.mean<&Net::forward>(split(x)).get(); }).what(),
             Contains("forward gave float64 [2, 2]: expected a tensor of one element"));
}

TEST_CASE(
    "a backward pass from a call of one replica is refused, with what to call, and the next one is right") {
  World world(3);
  auto& net = *world.net;
  const Tensor x = wave({6, 3}, 1), y = wave({6, 2}, 2);
  {
    autograd::Context step(*world.cluster);
    const Tensor loss = net.replicas()[1].call<&Net::loss>(x, y).get();
    const Error error = error_of([&] { step.backward(loss); });
    CHECK(error.kind() == ErrorKind::invalid);
    CHECK_THAT(error.what(), Contains("Net#") && Contains("on w1") && Contains("of that one alone") &&
                                 Contains("net.mean() or net(x)"));
  }
  world.at_rest();
  autograd::backward(mse_loss(world.whole(x), y));
  autograd::Context step(*world.cluster);
  step.backward(net.mean<&Net::loss>(split(x), split(y)).get());
  world.check_gradients();
}

namespace {

struct Unmade : nn::ModuleActor<Parts> {
  Unmade() {
    if (frame().worker->name() == "w1") throw_error(ErrorKind::failed, "[unmade] no such file");
  }
  static constexpr auto remote = methods<>;
};

}  // namespace

TEST_CASE("replicas that wait for one that cannot join are told at once, and keep nothing") {
  const auto cluster = Cluster::in_process(3, hosting<Unmade>(), {.timeout = Duration::zero()});
  const Group group(*cluster, {"w0", "w1", "w2"});
  {
    const DataParallel<Unmade> net(cluster->here(), group);
    CHECK_THAT(error_of([&] { net.ready().get(); }).what(), Contains("w1") && Contains("no such file"));
    for (const auto& w : cluster->workers())
      CHECK(testing::eventually([&] { return cluster->metrics(w)["collectives"] == 0; }));
  }
  nothing_left(*cluster);
}

namespace {

struct Normed : nn::Layer {
  nn::BatchNorm2d norm{3};
  Tensor forward(const Tensor& x) override { return norm(x); }
  void members(nn::Members& m) override { m("norm", norm); }
};

}  // namespace

namespace {

struct Noisy : nn::Layer {
  nn::Dropout drop{0.5, 7};
  nn::Linear scale{2, 2};
  Tensor forward(const Tensor& x) override { return drop(x); }
  void members(nn::Members& m) override { m("drop", drop), m("scale", scale); }
};

}  // namespace

TEST_CASE("replicas draw masks of their own, which follow from the seed and the rank") {
  auto cluster = Cluster::in_process(3, hosting<ModuleReplica<Noisy>>());
  DataParallel<Noisy> net(cluster->here(), Group(*cluster, {"w0", "w1", "w2"}));
  const Tensor x = ones({3 * 64});
  const Tensor out = net(x).get();
  std::vector<Tensor> parts;
  for (int64_t r = 0; r < 3; ++r) parts.push_back(out.slice(0, 64 * r, 64 * (r + 1)));
  CHECK_FALSE(parts[0].equal(parts[1]));
  CHECK_FALSE(parts[0].equal(parts[2]));
  CHECK_FALSE(parts[1].equal(parts[2]));
  nn::Dropout first(0.5, 7), second(0.5, 7);
  CHECK(first(ones({64})).equal(parts[0]));
  // The layer's generator is its seed's; that of rank 1 is the split of it.
  auto state = second.rng_state();
  REQUIRE(state.size() == 1);
  const auto at = state.begin()->second.to_vector<int64_t>();
  Generator random;
  random.set_position({uint64_t(at[0]), uint64_t(at[1])});
  const Generator::Position own = random.split(1).position();
  state.begin()->second = tensor(std::vector<int64_t>{int64_t(own.seed), int64_t(own.counter)}, int64);
  second.load_rng_state(state);
  CHECK(second(ones({64})).equal(parts[1]));
}

TEST_CASE("replicas whose gradients travel compressed stay equal, and learn") {
  const std::string compression = GENERATE("bf16", "topk(0.1)", "1bit");
  auto cluster = Cluster::in_process(3, hosting<ModuleReplica<nn::Linear>>());
  const DataParallelOptions options{.compression = Compression::parse(compression)};
  DataParallel<nn::Linear> net(cluster->here(), Group(*cluster, {"w0", "w1", "w2"}), options, 16, 4);
  optim::Distributed<optim::SGD> optimizer(net, {.lr = 0.05});
  Generator random(3);
  const Tensor x = randn({30, 16}, random), y = ops::matmul(x, randn({16, 4}, random));
  double first = 0, last = 0;
  for (int i = 0; i < 60; ++i) {
    autograd::Context step(*cluster);
    const Tensor loss = mse_loss(net(x).get(), y);
    step.backward(loss);
    optimizer.step(step);
    (i ? last : first) = loss.item();
  }
  CHECK(last < 0.5 * first);
  const auto values = nn::remote_state_dict(net.replicas()[0]).get();
  for (const auto& r : net.replicas())
    for (const auto& [name, value] : nn::remote_state_dict(r).get()) CHECK(bit_equal(value, values.at(name)));
}

namespace {

// A constant that a step of its backward pass reads.
struct WithConstant : nn::Layer {
  Tensor forward(const Tensor& x) override { return ops::sin(w * x * constant); }
  void members(nn::Members& m) override { m("w", w), m.buffer("constant", constant), m.buffer("mean", mean); }
  Tensor w = ones({3}).requires_grad_(), constant = wave({3}, 1).to(float32), mean = zeros({2});
};
struct ConstantNet : nn::ModuleActor<WithConstant> {
  Tensor loss(Tensor x) {
    if (x.size(0) > 0) net.mean.add_(x.select(0, 0).slice(0, 0, 2));
    return ops::mean(net(x));
  }
  void write(bool first) {
    if (first == (frame().worker->name() == "w0")) net.constant.fill_(2);
  }
  Tensors buffers() { return {net.constant, net.mean}; }
  static constexpr auto remote = methods<&ConstantNet::loss, &ConstantNet::write, &ConstantNet::buffers>;
};

}  // namespace

TEST_CASE("several passes of a context may read buffers that do not change") {
  auto cluster = Cluster::in_process(3, hosting<ConstantNet>());
  DataParallel<ConstantNet> net(cluster->here(), Group(*cluster, {"w0", "w1", "w2"}));
  const Tensor x = wave({6, 3}, 1).to(float32);
  const auto check_buffers = [&](const Tensor& constant) {
    for (const auto& r : net.replicas()) {
      const auto buffers = r.call<&ConstantNet::buffers>().get();
      CHECK(bit_equal(buffers[0], constant));
    }
  };
  WithConstant whole;
  {
    autograd::Context step(*cluster);
    const Tensor first = net.mean<&ConstantNet::loss>(split(x)).get();
    const Tensor second = net.mean<&ConstantNet::loss>(split(x * 2)).get();
    step.backward(first + second);
  }
  check_buffers(whole.constant);
  // What the first writes, all have in the next pass; what another one writes, none.
  for (const bool first : {true, false}) {
    for (const auto& r : net.replicas()) r.call<&ConstantNet::write>(first).get();
    autograd::Context step(*cluster);
    step.backward(net.mean<&ConstantNet::loss>(split(x)).get());
    check_buffers(full({3}, 2.0).to(float32));
    if (first) continue;
    // Before the pass the others had other running means than the first.
    const auto mean =
        net.replicas()[0].call<&ConstantNet::buffers>().get()[1] - x.select(0, 0).slice(0, 0, 2);
    const auto other =
        net.replicas()[2].call<&ConstantNet::buffers>().get()[1] - x.select(0, 4).slice(0, 0, 2);
    CHECK(difference(mean, other, 1e-6, 1e-6) == "");
  }
}

TEST_CASE("before each forward pass, replicas of a module have the buffers of the first") {
  const bool buffers = GENERATE(true, false);
  auto cluster = Cluster::in_process(3, hosting<ModuleReplica<Normed>>());
  const DataParallelOptions options{.buffers = buffers};
  DataParallel<Normed> net(cluster->here(), Group(*cluster, {"w1", "w2"}), options);
  Generator random(3);
  const Tensor x = randn({8, 3, 2, 2}, random);
  const auto means = [&](size_t r) {
    return nn::remote_state_dict(net.replicas()[r]).get().at("norm.running_mean");
  };
  for (int i = 0; i < 3; ++i) {
    const Tensor before = i ? means(0) : zeros({3});
    CHECK(net(x).get().shape() == x.shape());
    CHECK(difference(means(0), before * 0.9 + ops::mean(x.slice(0, 0, 4), {0, 2, 3}) * 0.1, 1e-5, 1e-6) ==
          "");
    if (buffers)
      CHECK(difference(means(1), before * 0.9 + ops::mean(x.slice(0, 4, 8), {0, 2, 3}) * 0.1, 1e-5, 1e-6) ==
            "");
  }
  Normed alone;
  for (int i = 0; i < 3; ++i) (void)alone(x.slice(0, 4, 8));
  CHECK(bit_equal(means(1), alone.state_dict().at("norm.running_mean")) == !buffers);
}
