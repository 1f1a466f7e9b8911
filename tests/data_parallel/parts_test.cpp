// Replicas whose parts are whole only while they run: the bits of replicas that are whole.
#include <catch2/catch.hpp>
#include <deque>
#include <map>

#include "autograd/hooks.h"
#include "tests/data_parallel/parts.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "troupe/replicas.h"
#include "troupe/simulated/simulated_cluster.h"

using namespace troupe;
using namespace troupe::parallel;
using Catch::Contains;
using testing::error_of;
using testing::kWays;
using testing::nothing_left;
using testing::wave;

namespace {

struct Hidden : nn::Layer {
  Hidden() : up(5, 11), norm(11), down(11, 7) {}
  Tensor forward(const Tensor& x) override { return down(norm(ops::tanh(up(x)))); }
  void members(nn::Members& m) override { m("up", up), m("norm", norm), m("down", down); }
  nn::Linear up;
  nn::LayerNorm norm;
  nn::Linear down;
};
struct Head : nn::Layer {
  Tensor forward(const Tensor& x) override { return ops::matmul(x, table.transpose(0, 1)) + bias; }
  void members(nn::Members& m) override { m("table", table), m("bias", bias); }
  Tensor table = wave({9, 7}, 1).requires_grad_(), bias = wave({9}, 2).requires_grad_();
};
struct PartsNet : nn::Module {
  PartsNet() {
    int i = 0;
    for (auto& [name, p] : named_parameters()) p.detach().copy_(wave(p.shape(), ++i));
  }
  Task<Tensor> operator()(Tensor x) {
    Tensor h = co_await first(x);
    h = ops::tanh(h * scale);
    for (int i = 0; i < times; ++i) h = h + co_await middle(h);
    if (uses_extra) h = co_await extra(h);
    co_return co_await head(h);
  }
  void members(nn::Members& m) override {
    m("first", first), m("scale", scale), m("middle", middle), m("extra", extra), m("head", head);
  }
  Sharded<Hidden> first;
  Tensor scale = wave({7}, 3).requires_grad_();  // in no part
  Sharded<nn::Linear> middle{7, 7};
  Sharded<nn::Linear> extra{7, 7};
  Sharded<Head> head;
  bool uses_extra = false;
  int times = 1;  // that the middle is called
};
struct PartsActor : nn::ModuleActor<PartsNet> {
  Task<Tensor> loss(Tensor x, Tensor y) {
    const Tensor out = co_await net(x);
    Tensor l = mse_loss(out, y);
    if (std::exchange(fails, false)) {
      l = l * 1;
      autograd::register_hook(l, [](const Tensor&) -> Tensor {
        throw_error(ErrorKind::failed, "[net] out of paper");
      }).keep();
    }
    co_return l;
  }
  void fail() { fails = true; }
  bool fails = false;
  void use_extra() { net.uses_extra = true; }
  void call_twice() { net.times = 2; }
  static constexpr auto remote =
      methods<&PartsActor::loss, &PartsActor::use_extra, &PartsActor::call_twice, &PartsActor::fail>;
};

struct Replicas {
  std::unique_ptr<Cluster> cluster = Cluster::in_process(4, hosting<PartsActor>());
  std::optional<DataParallel<PartsActor>> net;
  Replicas(size_t n, Shard shard, Per gather = Per::use, Per reduce = Per::use) {
    const auto workers = cluster->workers();
    const DataParallelOptions options{
        .buckets = {.first = 64, .others = 200}, .shard = shard, .gather = gather, .reduce = reduce};
    net.emplace(cluster->here(), Group(*cluster, {workers.begin(), workers.begin() + std::ptrdiff_t(n)}),
                options);
    net->ready().get();
    sharded = shard == Shard::all;
  }
  Future<Tensor> loss(int64_t i) {
    Tensors xs, ys;
    for (size_t r = 0; r < net->size(); ++r) {
      const int64_t rows = net->size() > 1 && i == 2 && r == 1 ? 0 : 1 + (int64_t(r) + i) % 3;
      xs.push_back(wave({rows, 5}, double(i) + 3 * double(r)));
      ys.push_back(wave({rows, 9}, double(i)));
    }
    return net->mean<&PartsActor::loss>(split(xs), split(ys));
  }
  // Of the first replica, those of parts put together.
  std::map<std::string, Tensor> parameters() {
    std::map<std::string, Tensors> pieces;
    for (const auto& r : net->replicas())
      for (const auto& [name, value] : nn::remote_parameters(r).get()) pieces[name].push_back(value);
    std::map<std::string, Tensor> all;
    for (const auto& [name, some] : pieces) {
      const bool cut = name != "scale" && some[0].dim() == 1 && sharded;
      all[name] = (cut ? ops::cat(some, 0) : some[0]).reshape({-1});
    }
    return all;
  }
  bool sharded = false;
  void at_rest() {
    nothing_left(*cluster);
    for (const auto& w : cluster->workers()) CHECK(cluster->metrics(w)["collectives"] == 0);
  }
};

}  // namespace

TEST_CASE("replicas of parts have the bits of replicas with whole parameters") {
  const size_t n = GENERATE(1, 2, 3, 4);
  for (const std::string name : {"sgd", "adamw"}) {
    std::map<std::string, Tensor> want;
    std::vector<double> norms, losses;
    for (const auto& [shard, gather, reduce] : kWays) {
      Replicas replicas(n, shard, gather, reduce);
      optim::DistributedOptimizer optimizer(*replicas.net, name, {{"lr", Value(0.05)}});
      for (int64_t i = 0; i < 5; ++i) {
        autograd::Context step(*replicas.cluster);
        step.backward(replicas.loss(i).get());
        optimizer.step(step);
        CHECK(optimizer.clip_grad_norm(step, 1e9) > 0);
      }
      INFO(name << " with " << word(shard) << " on " << n << ", once: " << (gather == Per::step)
                << (reduce == Per::step));
      if (want.empty()) want = replicas.parameters();
      for (const auto& [parameter, value] : replicas.parameters()) {
        INFO(parameter);
        CHECK(bit_equal(value, want.at(parameter)));
      }
      // Both passes of a context count, calls of a part twice, and each piece once in the norm.
      for (const auto& r : replicas.net->replicas()) r.call<&PartsActor::call_twice>().get();
      autograd::Context step(*replicas.cluster);
      step.backward(replicas.loss(0).get());
      step.backward(replicas.loss(1).get() + replicas.loss(2).get());
      norms.push_back(optimizer.clip_grad_norm(step, 0.1));
      optimizer.step(step);
      losses.push_back(replicas.loss(3).get().item());
      CHECK(norms.back() == Approx(norms[0]).epsilon(1e-5));
      CHECK(losses.back() == Approx(losses[0]).epsilon(1e-5));
    }
  }
}

TEST_CASE("parts that are reduced once have the bits of whole replicas over passes that accumulate") {
  const size_t n = GENERATE(2, 3);
  std::map<std::string, Tensor> want;
  for (const auto& [shard, gather, reduce] : kWays) {
    if (shard == Shard::all && reduce == Per::use) continue;
    Replicas replicas(n, shard, gather, reduce);
    optim::Distributed<optim::Adam> optimizer(*replicas.net, {.lr = 0.05});
    for (int64_t i = 0; i < 3; ++i) {
      autograd::Context step(*replicas.cluster);
      {
        const Accumulation later = replicas.net->accumulate();
        step.backward(replicas.loss(i).get() * 0.5);
        step.backward(replicas.loss(i + 1).get() * 0.25);
      }
      step.backward(replicas.loss(i + 2).get() * 0.25);
      optimizer.step(step);
    }
    INFO(word(shard) << " on " << n);
    if (want.empty()) want = replicas.parameters();
    for (const auto& [parameter, value] : replicas.parameters()) {
      INFO(parameter);
      CHECK(bit_equal(value, want.at(parameter)));
    }
    replicas.at_rest();
  }
}

namespace {

struct Table : nn::Layer {
  Tensor forward(const Tensor& x) override { return ops::matmul(x, table) + offset; }
  void members(nn::Members& m) override { m("table", table), m("offset", offset); }
  Tensor table = wave({6, 6}, 1).requires_grad_(), offset = wave({6}, 2).requires_grad_();
};
// Both parts have one table; the offset of the second is frozen.
struct TiedParts : nn::Module {
  TiedParts() {
    second.module.table = first.module.table;
    second.module.offset.requires_grad_(false);
  }
  Task<Tensor> operator()(Tensor x) {
    x = co_await first(x);
    co_return co_await second(ops::tanh(x));
  }
  void members(nn::Members& m) override { m("first", first), m("second", second); }
  Sharded<Table> first, second;
};
struct TiedActor : nn::ModuleActor<TiedParts> {
  Task<Tensor> loss(Tensor x) {
    const Tensor out = co_await net(x);
    co_return ops::mean(out * out);
  }
  static constexpr auto remote = methods<&TiedActor::loss>;
};

}  // namespace

TEST_CASE("a parameter that two parts share, and a frozen one, are those of one model") {
  std::map<std::string, Tensor> want;
  for (const Shard shard : {Shard::none, Shard::all}) {
    auto cluster = Cluster::in_process(3, hosting<TiedActor>());
    const DataParallelOptions options{.shard = shard};
    DataParallel<TiedActor> net(cluster->here(), Group(*cluster, {"w0", "w1", "w2"}), options);
    optim::Distributed<optim::Adam> optimizer(net, {.lr = 0.05});
    for (int i = 0; i < 4; ++i) {
      autograd::Context step(*cluster);
      step.backward(net.mean<&TiedActor::loss>(split(wave({5, 6}, i))).get());
      optimizer.step(step);
    }
    const StateDict state = net.state_dict().get();
    if (want.empty()) want = state;
    REQUIRE(state.size() == 4);
    for (const auto& [name, value] : state) CHECK(bit_equal(value, want.at(name)));
    CHECK(bit_equal(state.at("second.offset"), wave({6}, 2)));
    CHECK_FALSE(bit_equal(state.at("first.table"), wave({6, 6}, 1)));
    for (const auto& r : net.replicas())
      CHECK(nn::remote_state_dict(r).get().at("first.table").shape() == Shape{6, 6});
  }
}

TEST_CASE("a pass that fails on one replica of parts fails, and the next one is as if there had been none") {
  Replicas replicas(3, Shard::all), same(3, Shard::all);
  for (Replicas* r : {&replicas, &same}) {
    optim::Distributed<optim::Adam> optimizer(*r->net, {.lr = 0.05});
    autograd::Context step(*r->cluster);
    step.backward(r->loss(0).get());
    if (r == &replicas) {
      r->net->replicas()[1].call<&PartsActor::fail>().get();
      const Tensor loss = r->loss(1).get();
      CHECK_THAT(error_of([&] { step.backward(loss); }).what(), Contains("out of paper"));
    }
    step.backward(r->loss(1).get());
    optimizer.step(step);
  }
  const auto want = same.parameters();
  for (const auto& [name, value] : replicas.parameters()) CHECK(bit_equal(value, want.at(name)));
  replicas.at_rest();
}

TEST_CASE("the whole state of replicas is taken by any number of replicas, whatever they divide") {
  Replicas from(3, Shard::all);
  optim::Distributed<optim::Adam> optimizer(*from.net, {.lr = 0.05});
  for (int64_t i = 0; i < 3; ++i) {
    autograd::Context step(*from.cluster);
    step.backward(from.loss(i).get());
    optimizer.step(step);
  }
  const StateDict state = from.net->state_dict().get();
  CHECK(state.at("first.up.weight").shape() == Shape{11, 5});
  CHECK(bit_equal(state.at("head.table").reshape({-1}), from.parameters().at("head.table")));
  const double loss = from.loss(3).get().item();
  for (const Shard shard : {Shard::none, Shard::state, Shard::gradients, Shard::all})
    for (const size_t n : {2, 3}) {
      Replicas to(n, shard);
      to.net->load_state_dict(state).get();
      const StateDict same = to.net->state_dict().get();
      CHECK(same.size() == state.size());
      for (const auto& [name, value] : same) CHECK(bit_equal(value, state.at(name)));
      if (n == 3) CHECK(to.loss(3).get().item() == Approx(loss).epsilon(1e-6));
      StateDict less = state;
      less.erase("head.table");
      CHECK_THAT(error_of([&] { to.net->load_state_dict(less).get(); }).what(),
                 Contains("head.table") && Contains("missing"));
      to.at_rest();
    }
}

TEST_CASE("a part that no replica calls has no gradients") {
  Replicas replicas(2, Shard::all);
  auto& net = *replicas.net;
  const auto extra = [&] { return replicas.parameters().at("extra.weight"); };
  const Tensor before = extra();
  optim::Distributed<optim::AdamW> optimizer(net, {.lr = 0.05});
  const auto step_once = [&] {
    autograd::Context step(*replicas.cluster);
    step.backward(replicas.loss(0).get());
    optimizer.step(step);
  };
  step_once();
  CHECK(bit_equal(extra(), before));
  for (const auto& r : net.replicas()) r.call<&PartsActor::use_extra>().get();
  step_once();
  CHECK_FALSE(bit_equal(extra(), before));
  replicas.at_rest();
}

TEST_CASE("a part that one replica does not call is named, with the replica") {
  SimulatedCluster cluster(1, 3, hosting<PartsActor>());
  std::vector<RRef<PartsActor>> all;
  for (size_t r = 0; r < 2; ++r) all.push_back(cluster.here(0).spawn<PartsActor>(r + 1));
  std::optional<DataParallel<PartsActor>> net;
  net.emplace(all, DataParallelOptions{.shard = Shard::all});
  cluster.await(net->ready()).value();
  cluster.await(all[1].call<&PartsActor::use_extra>()).value();
  {
    autograd::Context step(cluster.worker(0));
    const auto loss =
        cluster.await(net->mean<&PartsActor::loss>(split(wave({4, 5}, 1)), split(wave({4, 9}, 2))));
    REQUIRE_FALSE(loss.ok());
    CHECK(loss.error().kind() == ErrorKind::deadline);
    CHECK_THAT(loss.error().what(), Contains("part head") || Contains("part extra"));
    CHECK_THAT(loss.error().what(), Contains("PartsActor#"));
    const Future<void> ended = step.end();
    cluster.await(ended);
  }
  net.reset(), all.clear();
  cluster.settle();
}

TEST_CASE("what parts cannot do is refused, naming the part") {
  Replicas replicas(2, Shard::all);
  auto& net = *replicas.net;
  optim::Distributed<optim::SGD> optimizer(net, {.lr = 0.05});
  {
    autograd::Context step(*replicas.cluster);
    const Tensor loss = replicas.loss(0).get();
    step.backward(loss, {}, {.retain_graph = true});
    step.backward(loss);  // gathered and reduced again
    optimizer.step(step);
    const Tensor again = replicas.loss(0).get();
    CHECK_THAT(error_of([&] { step.backward(again, {}, {.create_graph = true}); }).what(),
               Contains("recorded (create_graph)"));
  }
  optim::Distributed<optim::LAMB> lamb(net, {});
  CHECK_THAT(error_of([&] { (void)lamb.parameters_by_group(); }).what(),
             Contains("lamb looks at whole parameters") && Contains("Shard::all"));
  {
    const auto actors = net.replicas();
    replicas.net.reset();
    DataParallel<PartsActor> again(actors, DataParallelOptions{.shard = Shard::all});
    CHECK_THAT(error_of([&] { again.ready().get(); }).what(),
               Contains("part first of actor PartsActor#0") && Contains("was cut before"));
  }
  replicas.at_rest();
  auto plain = Cluster::in_process(1, hosting<ModuleReplica<nn::Linear>>());
  DataParallel<nn::Linear> without(plain->here(), Group(*plain, {"w0"}),
                                   DataParallelOptions{.shard = Shard::all}, 3, 3);
  CHECK_THAT(error_of([&] { without.ready().get(); }).what(),
             Contains("has no part") && Contains("parallel::Sharded<...>, or write Shard::gradients"));
}
