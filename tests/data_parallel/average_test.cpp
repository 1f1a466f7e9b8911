// Replicas that learn by themselves, whose parameters become their mean every so many steps.
#include <catch2/catch.hpp>
#include <cmath>

#include "autograd/distributed/optim/distributed_optimizer.h"
#include "ops/random.h"
#include "parallel/data/replica_average.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"
#include "tests/support/nothing_left.h"
#include "troupe/replicas.h"
#include "troupe/simulated/simulated_cluster.h"

using namespace troupe;
using namespace troupe::parallel;
using Catch::Contains;
using testing::difference;
using testing::error_of;
using testing::nothing_left;

namespace {

struct AverageNet : nn::Layer {
  nn::Linear hidden{6, 8, true, float64}, out{8, 3, true, float64};
  AverageNet() {
    Generator random(7);
    for (const Tensor& p : {hidden.weight, hidden.bias, out.weight, out.bias})
      p.detach().copy_(ops::randn(p.shape(), random) * 0.4);
  }
  Tensor forward(const Tensor& x) override { return out(ops::tanh(hidden(x))); }
  void members(nn::Members& m) override { m("hidden", hidden), m("out", out); }
};

struct AverageActor : nn::ModuleActor<AverageNet> {
  Tensor loss(Tensor x, Tensor y) { return mse_loss(net(x), y); }
  void freeze(bool on) { net.hidden.weight.requires_grad_(!on); }
  std::vector<Tensor> values() {
    std::vector<Tensor> all;
    for (const Tensor& p : parameters()) all.push_back(p.detach().clone_data());
    return all;
  }
  std::map<std::string, Tensor> progress() {
    for (const Stateful* s : Stateful::made_by(internal::actors::current_cell().get()))
      if (dynamic_cast<const ParameterAverage*>(s)) return s->state();
    return {};
  }
  void load_progress(std::map<std::string, Tensor> state) {
    for (Stateful* s : Stateful::made_by(internal::actors::current_cell().get()))
      if (dynamic_cast<ParameterAverage*>(s)) s->load_state(state);
  }
  static constexpr auto remote = methods<&AverageActor::loss, &AverageActor::freeze, &AverageActor::values,
                                         &AverageActor::progress, &AverageActor::load_progress>;
};

constexpr int64_t kRows = 12;

Tensor rows_of(int64_t width, uint64_t step) {
  return ops::randn({kRows, width}, Generator(step * 2 + uint64_t(width))).to(float64);
}

// One process that trains all replicas, one after the other.
struct Reference {
  Averaging how;
  std::vector<AverageNet> nets;
  std::vector<std::unique_ptr<optim::SGD>> optimizers = {};
  Tensors anchor = {}, momentum = {};
  int64_t steps = 0, since = 0;
  Reference(const Averaging& how, size_t n, const optim::SGDOptions& options) : how(how), nets(n) {
    for (AverageNet& net : nets)
      optimizers.push_back(std::make_unique<optim::SGD>(net.parameters(), options));
  }
  std::vector<double> losses() const { return {}; }
  void step(const Tensor& x, const Tensor& y) {
    const auto n = int64_t(nets.size()), each = kRows / n;
    if (since == how.every) mean();
    std::vector<Tensors> gradients;
    for (int64_t r = 0; r < n; ++r) {
      AverageNet& net = nets[size_t(r)];
      for (const Tensor& p : net.parameters()) p.set_grad({});
      autograd::backward(
          mse_loss(net(x.slice(0, r * each, (r + 1) * each)), y.slice(0, r * each, (r + 1) * each)));
      gradients.emplace_back();
      for (const Tensor& p : net.parameters()) gradients.back().push_back(p.grad());
    }
    if (steps < how.after) {  // as if one had all rows
      for (size_t k = 0; k < gradients[0].size(); ++k) {
        Tensor sum = gradients[0][k];
        for (size_t r = 1; r < nets.size(); ++r) sum = sum + gradients[r][k];
        for (auto& own : gradients) own[k] = sum / double(n);
      }
    } else {
      if (since == 0 && anchor.empty())
        for (const Tensor& p : nets[0].parameters()) anchor.push_back(p.detach().clone_data());
      ++since;
    }
    ++steps;
    for (size_t r = 0; r < nets.size(); ++r) optimizers[r]->step(gradients[r]);
  }
  void mean() {
    const NoGradGuard guard;
    since = 0;
    momentum.resize(anchor.size());
    for (size_t k = 0; k < anchor.size(); ++k) {
      Tensor sum = nets[0].parameters()[k].detach();
      for (size_t r = 1; r < nets.size(); ++r) sum = sum + nets[r].parameters()[k].detach();
      const Tensor off = anchor[k] - sum / double(nets.size());
      momentum[k] = momentum[k].defined() ? momentum[k] * how.outer_momentum + off : off;
      anchor[k] =
          anchor[k] - (how.nesterov ? off + momentum[k] * how.outer_momentum : momentum[k]) * how.outer_lr;
      for (AverageNet& net : nets) net.parameters()[k].detach().copy_(anchor[k]);
    }
  }
};

using Net = DataParallel<AverageActor>;

struct Averaged {
  std::unique_ptr<Cluster> cluster = Cluster::in_process(4, hosting<AverageActor>());
  std::optional<Net> net;
  std::optional<optim::Distributed<optim::SGD>> optimizer;
  Averaged(const Averaging& how, const optim::SGDOptions& options) {
    net.emplace(cluster->here(), Group(*cluster, {"w0", "w1", "w2"}), DataParallelOptions{.average = how});
    optimizer.emplace(*net, options);
  }
  void step(const Tensor& x, const Tensor& y) {
    autograd::Context context(*cluster);
    const Tensor loss = net->mean<&AverageActor::loss>(split(x), split(y)).get();
    context.backward(loss);
    optimizer->step(context);
  }
  std::vector<Tensors> values() {
    std::vector<Tensors> all;
    for (const auto& r : net->replicas()) {
      const auto own = r.call<&AverageActor::values>().get();
      all.emplace_back(own.begin(), own.end());
    }
    return all;
  }
};

void check_follows(Averaged& got, Reference& want) {
  const auto values = got.values();
  for (size_t r = 0; r < values.size(); ++r)
    for (size_t k = 0; k < values[r].size(); ++k)
      CHECK(difference(values[r][k], want.nets[r].parameters()[k].detach(), 1e-9, 1e-10) == "");
}

}  // namespace

TEST_CASE("local, post-local and DiLoCo replicas follow one process that trains all of them") {
  const Averaging how =
      GENERATE(Averaging{.every = 1}, Averaging{.every = 3}, Averaging{.every = 2, .after = 3},
               Averaging{.every = 3, .outer_lr = 0.7, .outer_momentum = 0.9},
               Averaging{.every = 2, .after = 1, .outer_lr = 0.5, .outer_momentum = 0.8, .nesterov = false});
  CAPTURE(how.str());
  const optim::SGDOptions inner{.lr = 0.1, .momentum = 0.5};
  Averaged got(how, inner);
  Reference want(how, 3, inner);
  for (uint64_t i = 0; i < 10; ++i) {
    CAPTURE(i);
    const Tensor x = rows_of(6, i), y = rows_of(3, i);
    got.step(x, y), want.step(x, y);
    check_follows(got, want);
  }
  if (want.since == how.every) want.mean();
  const StateDict first = got.net->state_dict().get();  // with the mean that is due
  CHECK(difference(first.at("out.weight"), want.nets[0].out.weight.detach(), 1e-9, 1e-10) == "");
  got.net->average().get();
  want.mean();
  check_follows(got, want);
  const auto values = got.values();
  for (const Tensors& own : values)
    for (size_t k = 0; k < own.size(); ++k) CHECK(bit_equal(own[k], values[0][k]));
  got.optimizer.reset(), got.net.reset();
  nothing_left(*got.cluster);
}

TEST_CASE("a mean in each step of SGD is the step of summed gradients, however rows are divided") {
  Averaged local({.every = 1}, {.lr = 0.1}), summed({}, {.lr = 0.1});
  for (uint64_t i = 0; i < 4; ++i) {
    const Tensor x = rows_of(6, i).slice(0, 0, 10), y = rows_of(3, i).slice(0, 0, 10);  // 4, 3, 3
    local.step(x, y), summed.step(x, y);
  }
  const StateDict a = local.net->state_dict().get(), b = summed.net->state_dict().get();
  for (const auto& [name, t] : a) CHECK(difference(t, b.at(name), 1e-9, 1e-10) == "");
}

TEST_CASE(
    "replicas that learn by themselves go on when others come and go, and one that missed a mean takes it") {
  const Averaging how{.every = 2, .outer_lr = 0.7, .outer_momentum = 0.9};
  Averaged averaged(how, {.lr = 0.1});
  auto& net = *averaged.net;
  const auto step = [&](uint64_t i) { averaged.step(rows_of(6, i), rows_of(3, i)); };
  step(0), step(1), step(2);
  const auto progress = [&](size_t r) { return net.replicas()[r].call<&AverageActor::progress>().get(); };
  net.replace(1, "w3");  // with the steps, the momentum and the parameters of another one
  for (const auto& [name, t] : progress(1)) CHECK(bit_equal(t, progress(0).at(name)));
  step(3), step(4);
  net.shrink(0);
  step(5), step(6);
  net.grow("w0");
  step(7);
  const auto equal = [&] {
    const auto values = averaged.values();
    for (const Tensors& own : values)
      for (size_t k = 0; k < own.size(); ++k)
        if (!bit_equal(own[k], values[0][k])) return false;
    return true;
  };
  CHECK_FALSE(equal());
  net.average().get();
  CHECK(equal());
  // As where a worker is lost while others take the mean already: one has one less.
  auto behind = progress(2);
  behind.at("progress") =
      tensor(std::vector<int64_t>{8, 2, behind.at("progress").to_vector<int64_t>()[2] - 1}, int64);
  behind.at("anchor.0") = zeros(behind.at("anchor.0").shape(), float64);
  net.replicas()[2].call<&AverageActor::load_progress>(behind).get();
  StateDict other = net.state_dict().get();
  CHECK(equal());
  for (const auto& [name, t] : progress(2)) CHECK(bit_equal(t, progress(0).at(name)));
  step(8);
  CHECK_FALSE(equal());
}

TEST_CASE("what is frozen as a mean is taken stays as it is, and is part of later ones") {
  Averaged averaged({.every = 1, .outer_lr = 0.7, .outer_momentum = 0.9}, {.lr = 0.1});
  auto& net = *averaged.net;
  const auto freeze = [&](bool on) {
    for (const auto& r : net.replicas()) r.call<&AverageActor::freeze>(on).get();
  };
  const auto value = [&] { return net.state_dict().get().at("hidden.weight"); };
  freeze(true);
  const Tensor before = value();
  for (uint64_t i = 0; i < 3; ++i) averaged.step(rows_of(6, i), rows_of(3, i));
  CHECK(bit_equal(value(), before));
  freeze(false);
  averaged.step(rows_of(6, 3), rows_of(3, 3));
  CHECK_FALSE(bit_equal(value(), before));
  const auto values = averaged.values();
  for (const Tensors& own : values) CHECK(bit_equal(own[0], values[0][0]));
}

TEST_CASE("the order of a mean is that of those who were with the last one") {
  const auto order = [](const std::vector<std::vector<int64_t>>& states, bool at_once = false) {
    const MeanOrder o = next_mean(states, at_once);
    return std::pair(o.needed, o.from);
  };
  CHECK(order({{2, 0, 1}, {2, 0, 1}}) == std::pair(false, kOfAll));
  CHECK(order({{2, 0, 1}, {2, 0, 1}}, true) == std::pair(true, kOfAll));
  CHECK(order({{2, 1, 1}, {2, 0, 1}}) == std::pair(true, kOfAll));
  CHECK(order({{1, 1, 1}, {2, 0, 1}, {2, 0, 1}}) == std::pair(true, int64_t{1}));
}

namespace {

// Rank by rank.
struct OfItself : nn::ModuleActor<AverageNet> {
  void join(Group group, int64_t every, double outer_lr) {
    average.reset();
    average.emplace(
        group, parameters(),
        Averaging{.every = every, .outer_lr = outer_lr, .outer_momentum = outer_lr == 1 ? 0. : 0.9});
    optimizer.emplace(parameters(), optim::SGDOptions{.lr = 0.1});
  }
  Task<bool> step(Tensor x, Tensor y) {
    for (const Tensor& p : parameters()) p.set_grad({});
    autograd::backward(mse_loss(net(x), y));
    optimizer->step();
    const auto averaging = average->step();
    co_return co_await averaging;
  }
  Tensor weight() { return net.out.weight.detach().clone_data(); }
  std::map<std::string, Tensor> state() { return average->state(); }
  void load(std::map<std::string, Tensor> state) { average->load_state(state); }
  std::optional<ParameterAverage> average;
  std::optional<optim::SGD> optimizer;
  static constexpr auto remote =
      methods<&OfItself::join, &OfItself::step, &OfItself::weight, &OfItself::state, &OfItself::load>;
};

struct Ranks {
  std::unique_ptr<Cluster> cluster = Cluster::in_process(3, hosting<OfItself>());
  std::vector<RRef<OfItself>> members;
  Ranks(const std::vector<int64_t>& every, double outer_lr) {
    for (size_t r = 0; r < 3; ++r) members.push_back(cluster->spawn<OfItself>(r));
    for (size_t r = 0; r < 3; ++r) members[r].call<&OfItself::join>(Group(members), every[r], outer_lr).get();
  }
  std::vector<Result<bool>> step(uint64_t i) {
    std::vector<Future<bool>> asked;
    for (size_t r = 0; r < 3; ++r) {
      const auto at = int64_t(r) * 4;
      asked.push_back(members[r].call<&OfItself::step>(rows_of(6, i).slice(0, at, at + 4),
                                                       rows_of(3, i).slice(0, at, at + 4)));
    }
    std::vector<Result<bool>> out;
    for (const auto& a : asked) out.push_back(a.wait());
    return out;
  }
};

}  // namespace

TEST_CASE("rank by rank members take their mean, and go on from their states") {
  const Averaging how{.every = 2, .outer_lr = 0.7, .outer_momentum = 0.9};
  Ranks ranks({2, 2, 2}, 0.7);
  Reference want(how, 3, {.lr = 0.1});
  for (uint64_t i = 0; i < 6; ++i) {
    for (const auto& r : ranks.step(i)) CHECK(r.value() == (i % 2 == 1));
    want.step(rows_of(6, i), rows_of(3, i));
    if (want.since == 2) want.mean();
    for (size_t r = 0; r < 3; ++r)
      CHECK(difference(ranks.members[r].call<&OfItself::weight>().get(), want.nets[r].out.weight.detach(),
                       1e-9, 1e-10) == "");
  }
  const auto state = ranks.members[0].call<&OfItself::state>().get();
  CHECK(state.at("progress").to_vector<int64_t>() == std::vector<int64_t>{6, 0, 3});
  ranks.members[1].call<&OfItself::load>(state).get();
  Ranks plain({2, 2, 2}, 1);
  const auto load = [&](std::map<std::string, Tensor> some) {
    return error_of([&] { plain.members[0].call<&OfItself::load>(some).get(); }).message();
  };
  CHECK_THAT(load(state), Contains("of an outer optimizer with momentum") && Contains("write the outer_lr"));
  CHECK_THAT(load({{"other", ones({1})}}), Contains("the state has 1 tensors, of which 0"));
  auto behind = plain.members[0].call<&OfItself::state>().get();
  behind.at("progress") = tensor(std::vector<int64_t>{1, 1, 0}, int64);
  CHECK_THAT(error_of([&] { ranks.members[0].call<&OfItself::load>(behind).get(); }).message(),
             Contains("1 steps behind a mean without an outer optimizer"));
}

TEST_CASE("members that bring other means are told so, all of them") {
  Ranks ranks({1, 2, 1}, 1);
  (void)ranks.members[1].call<&OfItself::step>(rows_of(6, 0), rows_of(3, 0)).get();  // not due there
  for (const auto& r : ranks.step(1)) {
    REQUIRE_FALSE(r.ok());
    CHECK_THAT(r.error().message(), Contains("members bring other means") && Contains("every 1 steps") &&
                                        Contains("every 2 steps") && Contains("give all the same"));
  }
}

TEST_CASE("a mean that cannot be is refused") {
  auto cluster = Cluster::in_process(2, hosting<AverageActor>());
  const auto refused = [&](const DataParallelOptions& options) {
    return error_of([&] { Net(cluster->here(), Group(*cluster, {"w0", "w1"}), options).ready().get(); })
        .message();
  };
  CHECK_THAT(refused({.average = {.every = -1}}), Contains("every -1 steps: expected 1 or more, or 0"));
  CHECK_THAT(refused({.average = {.every = 0, .after = 3}}), Contains("without it there is no mean"));
  CHECK_THAT(refused({.average = {.every = 2, .after = -3}}), Contains("after -3 steps"));
  CHECK_THAT(refused({.average = {.every = 2, .outer_lr = 0}}),
             Contains("outer_lr 0: expected a number above 0"));
  CHECK_THAT(refused({.average = {.every = 2, .outer_momentum = 1}}), Contains("at least 0 and below 1"));
  CHECK_THAT(refused({.average = {.every = 2}, .shard = Shard::state}), Contains("write Shard::none"));
  CHECK_THAT(refused({.compression = Compression::parse("bf16"), .average = {.every = 2}}),
             Contains("no gradient travels") && Contains("average.after"));
  Net summed(cluster->here(), Group(*cluster, {"w0", "w1"}));
  CHECK_THAT(error_of([&] { summed.average().get(); }).message(),
             Contains("write DataParallelOptions::average"));
}
