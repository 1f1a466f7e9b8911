// Replicas that divide the optimizer's state, and gradients, among them: the steps of replicas that do not.
#include <catch2/catch.hpp>
#include <deque>
#include <map>
#include <optional>

#include "actors/worker/worker.h"
#include "autograd/distributed/optim/distributed_optimizer.h"
#include "core/memory/cpu_allocator.h"
#include "parallel/sharded/bucket_cuts.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
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

Tensor wave(const Shape& shape, double start, DType dtype = float32) {
  std::vector<double> v;
  for (int64_t i = 0; i < shape.numel(); ++i) v.push_back(0.5 * std::sin(start + 0.7 * double(i)));
  return tensor(v, dtype).reshape(shape);
}

// A table that is tied to the output, one layer that is frozen, a weight that only rows with a large x use,
// and one that nobody does.
struct TiedNet : nn::Layer {
  TiedNet() : hidden(5, 7), frozen(7, 7) {
    table = wave({9, 7}, 1).requires_grad_();
    sometimes = wave({7}, 2).requires_grad_();
    never = wave({40}, 3).requires_grad_();
    hidden.load_state_dict({{"weight", wave({7, 5}, 4)}, {"bias", wave({7}, 5)}});
    frozen.load_state_dict({{"weight", wave({7, 7}, 6)}, {"bias", wave({7}, 7)}});
    for (Tensor p : frozen.parameters()) p.requires_grad_(false);
  }
  Tensor forward(const Tensor& x) override {
    Tensor h = frozen(ops::tanh(hidden(x)));
    const Tensor large = (x.slice(1, 0, 1) > 0.3).to(float32);
    if (ops::sum(large).item() > 0) h = h + large * (h * sometimes - h);
    h = h + table.slice(0, 0, 1);
    return ops::matmul(h, table.transpose(0, 1));
  }
  void members(nn::Members& m) override {
    m("hidden", hidden), m("frozen", frozen), m("table", table), m("sometimes", sometimes), m("never", never);
  }
  nn::Linear hidden, frozen;
  Tensor table, sometimes, never;
};

struct TiedActor : nn::ModuleActor<TiedNet> {
  Tensor loss(Tensor x, Tensor y) { return mse_loss(net(x), y); }
  Tensors whole_gradients() {
    Tensors all;
    for (const Tensor& p : parameters()) all.push_back(autograd::context_gradient(p));
    return all;
  }
  // The step of this one will fail.
  void spoil() { (void)autograd::exchange_context_gradient(net.frozen.weight, zeros({3, 1, 2})); }
  void keep_versions() { optim::set_copy_on_write(); }
  void to_other_elements() { net.to(float64); }
  static constexpr auto remote = methods<&TiedActor::loss, &TiedActor::whole_gradients, &TiedActor::spoil,
                                         &TiedActor::keep_versions, &TiedActor::to_other_elements>;
};

struct World {
  std::unique_ptr<Cluster> cluster = Cluster::in_process(4, hosting<TiedActor>());
  std::optional<DataParallel<TiedActor>> net;
  World(size_t n, Shard shard, BucketSizes buckets = {.first = 64, .others = 200}) {
    const auto workers = cluster->workers();
    const DataParallelOptions options{.buckets = buckets, .shard = shard};
    net.emplace(cluster->here(), Group(*cluster, {workers.begin(), workers.begin() + std::ptrdiff_t(n)}),
                options);
    net->ready().get();
  }
  std::map<std::string, Tensor> state(size_t r = 0) {
    return nn::remote_state_dict(net->replicas()[r]).get();
  }
  void check_equal() {
    const auto first = state();
    for (size_t r = 1; r < net->size(); ++r)
      for (const auto& [name, value] : state(r)) {
        INFO(name << " of replica " << r);
        CHECK(bit_equal(value, first.at(name)));
      }
  }
  void at_rest() {
    nothing_left(*cluster);
    for (const auto& w : cluster->workers()) CHECK(cluster->metrics(w)["collectives"] == 0);
  }
};

// Five steps of a run, with rows as uneven as they can be: one replica has none in the third.
template <class Step>
void batches(size_t n, Step step) {
  for (int64_t i = 0; i < 5; ++i) {
    Tensors xs, ys;
    for (size_t r = 0; r < n; ++r) {
      const int64_t rows = n > 1 && i == 2 && r == 1 ? 0 : 1 + (int64_t(r) + i) % 3;
      xs.push_back(wave({rows, 5}, double(i) + 3 * double(r)));
      ys.push_back(wave({rows, 9}, double(i)));
    }
    step(split(xs), split(ys));
  }
}

const std::vector<std::string> kElementwise{"sgd",     "adam",  "adamw",   "adamax",
                                            "rmsprop", "rprop", "adagrad", "adadelta"};

}  // namespace

TEST_CASE("every element of a bucket belongs to one member, whatever the counts") {
  for (const std::vector<int64_t>& counts :
       {std::vector<int64_t>{100, 1, 0, 63}, {1}, {}, {16, 16, 16, 16}, {1000003}, {3, 5, 7, 2}})
    for (size_t n = 1; n <= 9; ++n) {
      const BucketCuts cuts(counts, n);
      std::vector<int64_t> next(counts.size());
      int64_t largest = 0, least = INT64_MAX;
      for (size_t r = 0; r < n; ++r) {
        int64_t mine = 0;
        for (const auto& part : cuts.parts(r)) {
          CHECK(part.count > 0);
          CHECK(part.from == next[part.parameter]);
          next[part.parameter] += part.count, mine += part.count;
        }
        CHECK(cuts.elements()[r] == mine);
        largest = std::max(largest, mine), least = std::min(least, mine);
      }
      CHECK(next == counts);
      CHECK(largest - least <= 31);
    }
  CHECK(BucketCuts({40, 30}, 2).parts(1) == std::vector<BucketCuts::Part>{{0, 32, 8}, {1, 0, 30}});
}

TEST_CASE("with every optimizer, replicas with pieces have the bits of replicas that are whole") {
  const size_t n = GENERATE(1, 2, 3, 4);
  for (const std::string& name : kElementwise) {
    std::map<std::string, Tensor> want;
    for (const Shard shard : {Shard::none, Shard::state, Shard::gradients}) {
      World world(n, shard);
      auto& net = *world.net;
      optim::DistributedOptimizer optimizer(net, name, {{"lr", Value(0.05)}});
      batches(n, [&](const Split& x, const Split& y) {
        autograd::Context step(*world.cluster);
        step.backward(net.mean<&TiedActor::loss>(x, y).get());
        optimizer.step(step);
      });
      world.check_equal();
      if (want.empty()) want = world.state();
      for (const auto& [parameter, value] : world.state()) {
        INFO(name << " with " << word(shard) << " on " << n << ": " << parameter);
        CHECK(bit_equal(value, want.at(parameter)));
      }
      CHECK(bit_equal(world.state().at("never"), wave({40}, 3)));
      CHECK(bit_equal(world.state().at("frozen.weight"), wave({7, 7}, 6)));
      world.at_rest();
    }
  }
}

TEST_CASE("passes of a context, clipping and groups of options are those of one process, with pieces too") {
  const size_t n = GENERATE(1, 2, 4);
  std::vector<std::map<std::string, Tensor>> states;
  std::vector<double> norms;
  for (const Shard shard : {Shard::none, Shard::state, Shard::gradients}) {
    World world(n, shard);
    auto& net = *world.net;
    const optim::AdamWOptions plain{.lr = 0.05, .weight_decay = 0}, all{.lr = 0.05, .weight_decay = 0.2};
    const auto vectors = [](const std::string&, const Shape& shape) { return shape.rank() < 2; };
    optim::Distributed<optim::AdamW> optimizer(net, all, {{vectors, plain}});
    TiedNet whole;
    Tensors flat, deep;
    for (const Tensor& p : whole.parameters()) (p.dim() < 2 ? flat : deep).push_back(p);
    optim::AdamW local({{deep, all}, {flat, plain}});
    norms.clear();
    for (int i = 0; i < 4; ++i) {
      const Tensor x = wave({6, 5}, i), y = wave({6, 9}, i + 1), x2 = wave({2, 5}, i + 5),
                   y2 = wave({2, 9}, i + 6);
      local.zero_grad();
      autograd::backward(mse_loss(whole(x), y) * 0.75 + mse_loss(whole(x2), y2) * 0.25);
      autograd::Context step(*world.cluster);
      {
        std::optional<Accumulation> later;
        if (i % 2) later.emplace(net.accumulate());
        step.backward(net.mean<&TiedActor::loss>(split(x), split(y)).get() * 0.75);
      }
      step.backward(net.mean<&TiedActor::loss>(split(x2), split(y2)).get() * 0.25);
      norms.push_back(optimizer.clip_grad_norm(step, 0.1));
      CHECK(norms.back() == Approx(optim::clip_grad_norm_(whole.parameters(), 0.1)).epsilon(1e-5));
      // Whole gradients are there, as they were clipped, or not at all.
      for (const auto& r : net.replicas()) {
        const auto gradients = r.call<&TiedActor::whole_gradients>().get();
        CHECK(gradients[0].defined() == (shard != Shard::gradients));
        if (gradients[0].defined())
          CHECK(difference(gradients[0], whole.parameters()[0].grad(), 1e-4, 1e-6) == "");
      }
      optimizer.step(step);
      local.step();
    }
    world.check_equal();
    states.push_back(world.state());
    for (const auto& [name, value] : whole.state_dict()) {
      INFO(name << " with " << word(shard));
      CHECK(difference(states.back().at(name), value, 1e-4, 1e-5) == "");
    }
    world.at_rest();
  }
  // Norms are those of the same pieces in the same order.
  for (const auto& [name, value] : states[1]) CHECK(difference(value, states[2].at(name), 1e-6, 1e-7) == "");
}

TEST_CASE("a run with pieces goes on from a saved state with the bits of one that was not stopped") {
  const Shard shard = GENERATE(Shard::state, Shard::gradients);
  const testing::Folder folder;
  std::map<std::string, Tensor> middle, end;
  const auto steps = [&](World& world, optim::Distributed<optim::Adam>& optimizer) {
    batches(3, [&](const Split& x, const Split& y) {
      autograd::Context step(*world.cluster);
      step.backward(world.net->mean<&TiedActor::loss>(x, y).get());
      optimizer.step(step);
    });
  };
  {
    World world(3, shard);
    optim::Distributed<optim::Adam> optimizer(*world.net, {.lr = 0.05});
    steps(world, optimizer);
    optimizer.save(folder.path.string());
    middle = world.state();
    steps(world, optimizer);
    end = world.state();
  }
  World world(3, shard);
  optim::Distributed<optim::Adam> optimizer(*world.net, {.lr = 0.5});
  for (const auto& r : world.net->replicas()) nn::load_remote_state_dict(r, middle).get();
  optimizer.load(folder.path.string());
  steps(world, optimizer);
  for (const auto& [name, value] : world.state()) CHECK(bit_equal(value, end.at(name)));
}

TEST_CASE("a step that fails on one replica fails on all, and the next one makes them equal") {
  const Shard shard = GENERATE(Shard::state, Shard::gradients);
  World world(3, shard);
  auto& net = *world.net;
  optim::Distributed<optim::SGD> optimizer(net, {.lr = 0.1});
  const Tensor x = wave({6, 5}, 1), y = wave({6, 9}, 2);
  {
    autograd::Context step(*world.cluster);
    step.backward(net.mean<&TiedActor::loss>(split(x), split(y)).get());
    net.replicas()[1].call<&TiedActor::spoil>().get();
    const Error e = error_of([&] { optimizer.step(step); });
    CHECK_THAT(e.what(), Contains("its parameter is float32"));
    CHECK_THAT(e.what(), Contains("the step has failed on rank 1 (TiedActor#"));
    CHECK_THAT(error_of([&] { net.mean<&TiedActor::loss>(split(x), split(y)).get(); }).what(),
               Contains("the step has failed on rank 1 (TiedActor#"));
  }
  {
    autograd::Context step(*world.cluster);
    optimizer.step(step);
  }
  world.check_equal();
  net.mean<&TiedActor::loss>(split(x), split(y)).get();
  world.at_rest();
}

TEST_CASE("what pieces of parameters cannot have is refused, with what to write") {
  World world(2, Shard::state);
  auto& net = *world.net;
  const Tensor x = wave({2, 5}, 1), y = wave({2, 9}, 2);
  optim::Distributed<optim::LAMB> lamb(net, {});
  CHECK_THAT(error_of([&] { (void)lamb.parameters_by_group(); }).what(),
             Contains("lamb looks at whole parameters") && Contains("Shard::state") &&
                 Contains("write Shard::none"));
  CHECK_THAT(error_of([&] { net.replicas()[0].call<&TiedActor::keep_versions>().get(); }).what(),
             Contains("old versions of parameters") && Contains("write Shard::none"));
  optim::Distributed<optim::Adafactor> adafactor(net, {});
  CHECK_THAT(error_of([&] { (void)adafactor.parameters_by_group(); }).what(),
             Contains("adafactor looks at whole parameters"));
  optim::Distributed<optim::SGD> sgd(net, {.lr = 0.1});
  CHECK_THAT(error_of([&] {
               autograd::Context step(*world.cluster);
               step.backward(net.mean<&TiedActor::loss>(split(x), split(y)).get());
               net.replicas()[1].call<&TiedActor::to_other_elements>().get();
               sgd.step(step);
             }).what(),
             Contains("was given other elements after it was cut"));

  // Of actors that are there.
  std::vector<RRef<TiedActor>> actors;
  for (const char* w : {"w1", "w2"}) actors.push_back(world.cluster->spawn<TiedActor>(w));
  optim::Distributed<optim::SGD> earlier({actors.begin(), actors.end()}, {.lr = 0.1});
  std::optional<DataParallel<TiedActor>> later;
  later.emplace(actors, DataParallelOptions{.shard = Shard::gradients});
  optim::Distributed<optim::SGD> right(*later, {.lr = 0.1});
  autograd::Context step(*world.cluster);
  step.backward(later->mean<&TiedActor::loss>(split(x), split(y)).get());
  CHECK_THAT(error_of([&] { earlier.step(step); }).what(),
             Contains("were cut (Shard::gradients) after this optimizer was made: make it afterwards"));
  CHECK_THAT(error_of([&] { earlier.clip_grad_norm(step, 1); }).what(), Contains("make it afterwards"));
  later.reset();
  CHECK_THAT(error_of([&] { right.step(step); }).what(), Contains("is gone") && Contains("make a new one"));
  for (const auto& a : actors) a.call<&TiedActor::keep_versions>().get();
  DataParallel<TiedActor> versions(actors, DataParallelOptions{.shard = Shard::gradients});
  CHECK_THAT(error_of([&] { versions.ready().get(); }).what(), Contains("leave out what keeps them"));
}

namespace {

struct Big : nn::Layer {
  Big() {
    for (int i = 0; i < 8; ++i) layers.emplace_back(512, 512, false);
  }
  Tensor forward(const Tensor& in) override {
    Tensor x = in;
    for (auto& l : layers) x = ops::tanh(l(x));
    return x;
  }
  void members(nn::Members& m) override {
    for (size_t i = 0; i < layers.size(); ++i) m(std::to_string(i), layers[i]);
  }
  std::deque<nn::Linear> layers;
};

}  // namespace

TEST_CASE("a replica keeps as many bytes for each parameter as its share says") {
  const size_t n = GENERATE(2, 4);
  const std::map<Shard, double> of_two{{Shard::none, 16}, {Shard::state, 12}, {Shard::gradients, 10}},
      of_four{{Shard::none, 16}, {Shard::state, 10}, {Shard::gradients, 7}};
  for (const auto& [shard, want] : n == 2 ? of_two : of_four) {
    release_cached_cpu_memory();
    const size_t before = cpu_allocator_stats().in_use;
    auto cluster = Cluster::in_process(4, hosting<ModuleReplica<Big>>());
    const auto workers = cluster->workers();
    const DataParallelOptions options{.buckets = {.first = 1 << 20, .others = 1 << 20}, .shard = shard};
    DataParallel<Big> net(cluster->here(),
                          Group(*cluster, {workers.begin(), workers.begin() + std::ptrdiff_t(n)}), options);
    optim::Distributed<optim::Adam> optimizer(net, {.lr = 1e-3});
    for (int i = 0; i < 2; ++i) {
      autograd::Context step(*cluster);
      {
        const Tensor out = net(wave({8, 512}, i)).get();
        step.backward(ops::mean(out * out));
      }
      optimizer.step(step);
      if (i == 0) continue;
      const double bytes = double(cpu_allocator_stats().in_use - before) / double(n) / (8 * 512 * 512);
      INFO(word(shard) << " on " << n << ": " << bytes << " bytes");
      CHECK(bytes > 0.9 * want);
      CHECK(bytes < 1.1 * want);
    }
  }
}

namespace {

struct Member : Actor {
  void join(Group group, int64_t shard) {
    const ReducerOptions options{.buckets = {.first = 16 << 10, .others = 64 << 10},
                                 .shard = static_cast<Shard>(shard)};
    reducer.emplace(group, Tensors{w, v}, options);
    local.emplace(reducer->pieces(), optim::AdamOptions{.lr = 0.1});
  }
  Task<double> step(Tensor x) {
    const autograd::Context own;
    const auto passing = reducer->backward(ops::sum(w * w * x) + ops::sum(v * x), 1);
    const double loss = co_await passing;
    local->step(reducer->gradients());
    const Future<void> gathering = reducer->gather();
    co_await gathering;
    co_return loss;
  }
  std::vector<Tensor> values() { return {w.clone_data(), v.clone_data()}; }
  Tensor w = wave({1 << 17}, 1).requires_grad_(), v = wave({1 << 17}, 2).requires_grad_();
  std::optional<GradientReducer> reducer;
  std::optional<optim::Adam> local;
  static constexpr auto remote = methods<&Member::join, &Member::step, &Member::values>;
};

struct Members {
  SimulatedCluster cluster;
  std::vector<RRef<Member>> all;
  Members(size_t n, Shard shard) : cluster(1, int(n) + 1, hosting<Member>()) {
    for (size_t r = 0; r < n; ++r) all.push_back(cluster.here(0).spawn<Member>(r + 1));
    const Group group(all);
    for (auto& m : all) cluster.await(m.call<&Member::join>(group, int64_t(shard))).value();
  }
  std::vector<Future<double>> step() {
    std::vector<Future<double>> asked;
    for (size_t r = 0; r < all.size(); ++r)
      asked.push_back(all[r].call<&Member::step>(tensor(1.0F + float(r))));
    return asked;
  }
  uint64_t sent(size_t from) {
    uint64_t bytes = 0;
    for (size_t to = 1; to <= all.size(); ++to)
      bytes += cluster.network().counters("w" + std::to_string(from), "w" + std::to_string(to)).bytes;
    return bytes;
  }
};

}  // namespace

TEST_CASE("rank by rank, members with pieces send as much as formulas say, and have the same bits") {
  const size_t n = GENERATE(2, 4);
  std::vector<Tensor> want;
  for (const auto& [shard, parts] :
       {std::pair{Shard::none, 2.0}, {Shard::state, 3.0}, {Shard::gradients, 2.0}}) {
    Members members(n, shard);
    for (auto& loss : members.step()) members.cluster.await(loss).value();  // connections are there now
    std::vector<uint64_t> before;
    for (size_t r = 1; r <= n; ++r) before.push_back(members.sent(r));
    for (auto& loss : members.step()) members.cluster.await(loss).value();
    for (size_t r = 1; r <= n; ++r) {
      const double bytes =
          double(members.sent(r) - before[r - 1]) / (double(n - 1) / double(n) * 4 * 2 * (1 << 17));
      INFO(word(shard) << " on " << n << ": " << bytes << " of each parameter");
      CHECK(bytes == Approx(parts).epsilon(0.02));
    }
    for (auto& m : members.all) {
      const auto got = members.cluster.await(m.call<&Member::values>()).value();
      if (want.empty()) want = got;
      for (size_t i = 0; i < 2; ++i) CHECK(bit_equal(got[i], want[i]));
    }
    members.all.clear();
    members.cluster.settle();
  }
}

TEST_CASE("a member that dies at any time of a step is named to the others, and nothing is left") {
  const Shard shard = GENERATE(Shard::state, Shard::gradients);
  bool ended_well = false;
  for (int at = 0; !ended_well; ++at) {
    Members members(3, shard);
    for (auto& loss : members.step()) members.cluster.await(loss).value();
    const auto losses = members.step();
    for (int i = 0; i < 7 * at; ++i) members.cluster.step();
    ended_well = losses[2].is_ready();
    members.cluster.network().crash("w3");
    for (size_t r = 0; r < 2; ++r) {
      const auto loss = members.cluster.await(losses[r]);
      if (loss.ok()) continue;
      INFO("after " << 7 * at << " events");
      CHECK(loss.error().kind() == ErrorKind::disconnected);
      CHECK(loss.error().worker() == "w3");
    }
    members.all.clear();
    members.cluster.settle();
    for (size_t w = 0; w < 3; ++w)
      for (const char* what : {"collectives", "contexts", "backward_passes"}) {
        INFO(what << " of w" << w << " after " << 7 * at << " events");
        CHECK(members.cluster.worker(w).metrics().at(what) == 0);
      }
  }
}
