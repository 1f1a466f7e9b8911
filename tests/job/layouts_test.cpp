// Jobs go on with another number of replicas, another shard, other ranks and stages.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <regex>

#include "data/checkpoint/checkpoint_files.h"
#include "data/formats/safetensors.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/stopped_run.h"
#include "troupe/checkpoint/owned_pieces.h"
#include "troupe/pipeline.h"
#include "troupe/replicas.h"
#include "troupe/tensor_parallel.h"

using namespace troupe;
using Catch::Contains;
using internal::PartOwner;
using parallel::Shard;
using parallel::split;
using testing::error_of;

namespace {

// With a parameter that is frozen, and one of no elements.
struct LayoutEnd : nn::Layer {
  LayoutEnd() { fixed.requires_grad_(false), factor.requires_grad_(); }
  Tensor forward(const Tensor& x) override { return (x + fixed) * factor + ops::sum(none); }
  void members(nn::Members& m) override { m("fixed", fixed), m("factor", factor), m("none", none); }
  Tensor fixed = tensor({0.5, -0.25, 1.0}).to(float32), factor = ones({3}),
         none = zeros({0, 4}).requires_grad_();
};
struct LayoutNet : nn::Module {
  LayoutNet() { frozen.module.requires_grad_(false); }
  Task<Tensor> operator()(Tensor x) {
    Tensor h = co_await first(x);
    h = ops::tanh(h) * scale + shift;
    h = co_await second(h);
    h = co_await frozen(h);
    co_return co_await end(h);
  }
  void members(nn::Members& m) override {
    m("first", first), m("second", second), m("scale", scale), m("shift", shift), m("frozen", frozen),
        m("end", end);
    m.buffer("seen", seen);
  }
  parallel::Sharded<nn::Linear> first{5, 7}, second{7, 3}, frozen{3, 3};
  parallel::Sharded<LayoutEnd> end;
  Tensor scale = ones({7}).requires_grad_(), shift = zeros({}).requires_grad_();
  Tensor seen = zeros({2});
};
struct LayoutReplica : nn::ModuleActor<LayoutNet> {
  Task<Tensor> loss(Tensor x, Tensor y) {
    const Tensor out = co_await net(x);
    co_return ops::mse_loss(out, y);
  }
  static constexpr auto remote = methods<&LayoutReplica::loss>;
};

// A network of four blocks, of which each stage has some, by their numbers in the whole; cut over ranks. Some
// replicas of more than two have no element of a bias.
struct LayoutBlock : nn::Module {
  explicit LayoutBlock(const Group& tp) : up(tp, 4, 6), down(tp, 6, 4) {}
  tp::Part operator()(Tensor x) { return down(thin(ops::tanh(up(x)))); }
  void members(nn::Members& m) override { m("up", up), m("thin", thin), m("down", down); }
  tp::ColumnLinear up;
  nn::Dropout thin{0.0};  // with a generator, which is of one stage or another
  tp::RowLinear down;
};
struct LayoutPart : nn::Module {
  explicit LayoutPart(const Mesh& mesh) {
    for (size_t b = 0; b < 4; ++b)
      if (b * mesh.size("pp") / 4 == mesh.coordinate("pp")) blocks.try_emplace(b, mesh["tp"]);
  }
  void members(nn::Members& m) override {
    for (auto& [number, block] : blocks) m("block" + std::to_string(number), block);
  }
  std::map<size_t, parallel::Sharded<LayoutBlock>> blocks;
};
struct LayoutStage : nn::ModuleActor<LayoutPart> {
  explicit LayoutStage(Mesh mesh) : ModuleActor(mesh) {}
  Task<Tensor> forward(Tensor x) {
    for (auto& [number, block] : net.blocks) {
      const Task<Tensor> summing = block(x);
      const Tensor sum = co_await summing;
      x = x + sum;
    }
    co_return x;
  }
  Tensor loss(Tensor x, Tensor y) { return ops::mse_loss(x, y); }
  static constexpr auto remote = methods<&LayoutStage::forward, &LayoutStage::loss>;
};

using Losses = std::map<int64_t, double>;  // by step
constexpr int64_t kLayoutSteps = 12;

Tensor layout_rows(int64_t step, int64_t columns) {
  return ops::sin(arange(12 * columns).to(float32) * (0.37 + 0.01 * double(step))).reshape({12, columns});
}

struct LayoutFolder {
  testing::Folder folder;
  Checkpoints first{(folder.path / "run").string(), false, 1, 8}, again{first.dir, true, 0, 2};
};

Losses replicas_run(const Checkpoints& checkpoints, size_t n, Shard shard, int64_t stop = kLayoutSteps,
                    const parallel::Compression& compression = {}, const parallel::Averaging& average = {}) {
  manual_seed(3);
  auto cluster = Cluster::in_process(4, hosting<LayoutReplica>(), {.checkpoints = checkpoints});
  const auto workers = cluster->workers();
  const parallel::DataParallelOptions options{.buckets = {.first = 64, .others = 200},
                                              .compression = compression,
                                              .average = average,
                                              .shard = shard};
  const Group group(*cluster, {workers.begin(), workers.begin() + std::ptrdiff_t(n)});
  parallel::DataParallel<LayoutReplica> net(cluster->here(), group, options);
  optim::Distributed<optim::AdamW> optimizer(net, {.lr = 0.05});
  optim::Scheduler rate(optimizer, optim::cosine(kLayoutSteps));
  Losses losses;
  Job job(*cluster);
  for (const int64_t step : job.steps(kLayoutSteps)) {
    if (stop < kLayoutSteps && testing::has_stopped(checkpoints.dir, step, stop)) break;
    autograd::Context context(*cluster);
    const Tensor loss =
        net.mean<&LayoutReplica::loss>(split(layout_rows(step, 5)), split(layout_rows(step, 3))).get();
    context.backward(loss);
    optimizer.step(context), rate.step();
    job.check(losses[step] = loss.item());
  }
  return losses;
}

struct Dims {
  size_t dp, pp, tp;
  Shard shard;
  size_t chunks = 1;
};
Losses mesh_run(const Checkpoints& checkpoints, const Dims& d, int64_t stop = kLayoutSteps) {
  manual_seed(4);
  auto cluster =
      Cluster::in_process(int(d.dp * d.pp * d.tp), hosting<LayoutStage>(), {.checkpoints = checkpoints});
  const Mesh mesh(*cluster, {{"dp", d.dp}, {"pp", d.pp * d.chunks, d.chunks}, {"tp", d.tp}});
  const auto model = parallel::spawn<LayoutStage>(cluster->here(), mesh);
  const auto method = parallel::stage<&LayoutStage::forward>().with_loss<&LayoutStage::loss>();
  parallel::Pipelines train(cluster->here(), model, method,
                            {.schedule = d.chunks > 1 ? "interleaved" : "1f1b",
                             .micro_batches = 2,
                             .chunks = int(d.chunks),
                             .shard = d.shard});
  optim::Distributed<optim::Adam> optimizer({model.actors().begin(), model.actors().end()}, {.lr = 0.02});
  Losses losses;
  Job job(*cluster);
  for (const int64_t step : job.steps(kLayoutSteps)) {
    if (stop < kLayoutSteps && testing::has_stopped(checkpoints.dir, step, stop)) break;
    autograd::Context context(*cluster);
    losses[step] = train.step(Value(layout_rows(step, 4)), Value(ops::tanh(layout_rows(step, 4)))).loss;
    optimizer.step(context);
  }
  return losses;
}

// Those of the steps that a run made that went on.
void check_end(const Losses& resumed, const Losses& whole, double most) {
  REQUIRE(resumed.size() > 2);
  CHECK(resumed.begin()->first > 0);
  CHECK(resumed.rbegin()->first == kLayoutSteps - 1);
  for (const auto& [step, loss] : resumed) {
    INFO("step " << step);
    CHECK(std::abs(loss - whole.at(step)) <= most * std::abs(whole.at(step)));
  }
}

}  // namespace

TEST_CASE("a job of replicas goes on with other numbers of them, and other pieces") {
  struct Change {
    size_t from;
    Shard before;
    size_t to;
    Shard after;
  };
  std::map<Shard, Losses> whole;
  for (const Shard shard : {Shard::none, Shard::state, Shard::gradients, Shard::all})
    whole[shard] = replicas_run({}, 3, shard);
  REQUIRE(whole[Shard::none].size() == kLayoutSteps);
  for (const Change& c : {Change{3, Shard::none, 3, Shard::all}, Change{3, Shard::all, 3, Shard::state},
                          Change{3, Shard::gradients, 3, Shard::none}, Change{3, Shard::all, 2, Shard::none},
                          Change{2, Shard::none, 4, Shard::all}, Change{4, Shard::state, 1, Shard::gradients},
                          Change{2, Shard::all, 3, Shard::all}, Change{1, Shard::none, 4, Shard::gradients},
                          Change{4, Shard::none, 2, Shard::none}}) {
    INFO(c.from << " with " << parallel::word(c.before) << " to " << c.to << " with "
                << parallel::word(c.after));
    const LayoutFolder at;
    (void)replicas_run(at.first, c.from, c.before, 4);
    const auto steps = datasets::committed_steps(at.first.dir);
    REQUIRE(steps.back() > 0);
    const int64_t from = *std::ranges::upper_bound(steps, 0);
    // Steps are made again then, whose losses the first run has told.
    for (const int64_t step : steps)
      if (step > from) std::filesystem::remove_all(datasets::checkpoint_path(at.first.dir, step));
    const auto resumed = replicas_run(at.again, c.to, c.after);
    check_end(resumed, whole[c.after], c.from == 3 && c.to == 3 ? 0 : 1e-5);
  }
}

TEST_CASE("replicas whose gradients travel compressed go on with what that has left out") {
  for (const std::string text : {"topk(0.1)", "1bit", "powersgd(1)", "fp16"}) {
    INFO(text);
    const auto compression = parallel::Compression::parse(text);
    const auto whole = replicas_run({}, 3, Shard::none, kLayoutSteps, compression);
    const LayoutFolder at;
    (void)replicas_run(at.first, 3, Shard::none, 4, compression);
    check_end(replicas_run(at.again, 3, Shard::none, kLayoutSteps, compression), whole, 0);
    if (text == "fp16") continue;  // leaves nothing out
    const LayoutFolder other;
    (void)replicas_run(other.first, 3, Shard::none, 4, compression);
    const Error e =
        error_of([&] { (void)replicas_run(other.again, 2, Shard::none, kLayoutSteps, compression); });
    CHECK_THAT(e.what(), Contains(" is refused: ") && Contains("LayoutReplica#"));
  }
}

TEST_CASE("replicas that learn by themselves go on between two means, with the outer momentum") {
  for (const int64_t every : {2, 3}) {
    const parallel::Averaging average{.every = every, .outer_lr = 0.7, .outer_momentum = 0.9};
    const auto whole = replicas_run({}, 3, Shard::none, kLayoutSteps, {}, average);
    const LayoutFolder at;
    (void)replicas_run(at.first, 3, Shard::none, 4, {}, average);
    check_end(replicas_run(at.again, 3, Shard::none, kLayoutSteps, {}, average), whole, 0);
  }
  const LayoutFolder other;
  (void)replicas_run(other.first, 3, Shard::none, 4, {}, {.every = 2, .outer_momentum = 0.9});
  const Error e =
      error_of([&] { (void)replicas_run(other.again, 3, Shard::none, kLayoutSteps, {}, {.every = 2}); });
  // Before the second mean there is no momentum yet; the newest checkpoint may be of that time.
  CHECK_THAT(e.what(), Contains("of an outer optimizer") && Contains("write the outer_lr"));
}

TEST_CASE("a job goes on from a checkpoint of format 1, in which parameters of parts have other names") {
  const auto whole = replicas_run({}, 3, Shard::all);
  const LayoutFolder at;
  (void)replicas_run(at.first, 3, Shard::all, 4);
  const int64_t step = datasets::committed_steps(at.first.dir).back();
  const std::string now = datasets::checkpoint_path(at.first.dir, step);
  for (const auto& [replicas, shard] : {std::pair(3, Shard::all), std::pair(2, Shard::gradients)}) {
    const LayoutFolder before;
    {
      const datasets::CheckpointFolder folder(before.first.dir);
      const std::string then = folder.begin(step);
      auto index = datasets::Checkpoint(now).index();
      index.format = 1;
      size_t renamed = 0;
      for (auto& file : index.files) {
        datasets::NamedTensors tensors;
        for (const auto& [name, t] : datasets::read_safetensors(now + "/" + file.name)) {
          const std::string old = std::regex_replace(name, std::regex("\\.(first|second)\\."), ".$1.module.");
          renamed += old != name;
          tensors[old] = t;
        }
        file = datasets::write_checkpoint_file(then, file.name, tensors, file.model);
      }
      CHECK(renamed > 20);
      folder.commit(index);
    }
    check_end(replicas_run(before.again, size_t(replicas), shard), whole, replicas == 3 ? 0 : 1e-5);
  }
}

TEST_CASE("a job on a mesh goes on with other replicas, stages and ranks") {
  for (const auto& [before, after] :
       std::vector<std::pair<Dims, Dims>>{{{2, 2, 2, Shard::gradients}, {1, 1, 2, Shard::none}},
                                          {{1, 1, 2, Shard::none}, {2, 2, 1, Shard::state}},
                                          {{2, 1, 3, Shard::state}, {1, 2, 2, Shard::none}},
                                          {{1, 1, 1, Shard::none}, {4, 1, 1, Shard::all}},
                                          {{4, 1, 1, Shard::all}, {3, 1, 1, Shard::all}},
                                          {{3, 1, 2, Shard::all}, {1, 2, 2, Shard::none}},
                                          {{2, 2, 2, Shard::gradients}, {3, 2, 1, Shard::all}},
                                          {{1, 1, 1, Shard::none}, {1, 2, 3, Shard::none}},
                                          {{2, 2, 1, Shard::gradients, 2}, {2, 2, 1, Shard::gradients, 2}},
                                          {{2, 2, 1, Shard::state, 2}, {1, 2, 2, Shard::none}},
                                          {{1, 2, 1, Shard::none}, {2, 2, 2, Shard::all, 2}}}) {
    INFO(before.dp << before.pp << before.tp << " to " << after.dp << after.pp << after.tp);
    const auto whole = mesh_run({}, before);
    const LayoutFolder at;
    (void)mesh_run(at.first, before, 4);
    REQUIRE(datasets::committed_steps(at.first.dir).back() > 0);
    const bool same = before.chunks == after.chunks && before.shard == after.shard;
    check_end(mesh_run(at.again, after), whole, same && before.chunks > 1 ? 0 : 1e-5);
  }
}

TEST_CASE("whatever way a tensor is cut, its parts are the whole again, each element from someone") {
  Generator random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> sizes;
    for (uint64_t i = 0, n = 1 + random.below(3); i < n; ++i) sizes.push_back(1 + int64_t(random.below(6)));
    const Shape shape(sizes);
    const Tensor whole = arange(shape.numel()).reshape(shape);
    const auto dim = int64_t(random.below(sizes.size()));
    const auto ranks = int64_t(1 + random.below(4)), replicas = int64_t(1 + random.below(3));
    std::vector<PartOwner> owners;
    for (int64_t t = 0; t < ranks; ++t) {
      const int64_t n = shape[int(dim)];
      optim::Placement rank{shape, dim, {{n * t / ranks, n * (t + 1) / ranks - n * t / ranks}}};
      const Tensor local = rank.of(whole).reshape({rank.local().numel()});
      for (int64_t r = 0; r < replicas; ++r) {
        const int64_t from = local.numel() * r / replicas, end = local.numel() * (r + 1) / replicas;
        rank.run = {from, end - from};
        const Tensor part = local.slice(0, from, end).clone_data();
        CHECK(bit_equal(rank.of(whole), part));
        owners.push_back({"Net#" + std::to_string(owners.size()), {{{"w", part}}, {}}, {{"w", rank}}});
      }
    }
    CHECK(bit_equal(internal::whole_of(owners, "w", true, "w"), whole));
    // With one of them less it is whole no more, unless that one had nothing.
    const size_t gone = random.below(owners.size());
    const bool had = owners[gone].pieces.at("w").run->count > 0;
    owners.erase(owners.begin() + std::ptrdiff_t(gone));
    if (!had || owners.empty()) continue;
    CHECK_THAT(error_of([&] { (void)internal::whole_of(owners, "w", true, "w"); }).what(),
               Contains("elements: no Net#... had them"));
  }
}

TEST_CASE("actors that had no model together are not taken for parts of one") {
  const LayoutFolder at;
  // So many replicas of each of two models.
  const auto run = [](const Checkpoints& checkpoints, std::ptrdiff_t replicas) {
    auto cluster = Cluster::in_process(4, hosting<LayoutReplica>(), {.checkpoints = checkpoints});
    const auto w = cluster->workers();
    const Group one(*cluster, {w.begin(), w.begin() + replicas});
    parallel::DataParallel<LayoutReplica> a(cluster->here(), one), b(cluster->here(), one);
    Job job(*cluster);
    for (const int64_t step : job.steps(3)) (void)step;
  };
  manual_seed(6);
  run(at.first, 1);
  run(at.again, 1);
  const Error e = error_of([&] { run(at.again, 2); });
  CHECK_THAT(e.what(), Contains("the checkpoint of step 3 in " + at.first.dir + " is refused") &&
                           Contains("has other elements for ") && Contains("no model together"));
  manual_seed(0);
}

TEST_CASE("a part of the model that no actor has any more, or an optimizer that is not there, is refused") {
  const LayoutFolder at;
  (void)mesh_run(at.first, {1, 2, 1, Shard::none}, 3);
  const auto refusal = [&](std::vector<MeshDim> dims, bool optimizes) {
    const Error e = error_of([&] {
      auto cluster = Cluster::in_process(4, hosting<LayoutStage>(), {.checkpoints = at.again});
      const auto model = parallel::spawn<LayoutStage>(cluster->here(), Mesh(*cluster, std::move(dims)));
      std::vector<AnyRef> actors{model.actors().begin(), model.actors().end()};
      if (!optimizes) actors.pop_back();
      optim::Distributed<optim::Adam> optimizer(actors, {.lr = 0.02});
      Job job(*cluster);
      for (const int64_t step : job.steps(kLayoutSteps)) (void)step;
    });
    return std::string(e.what());
  };
  CHECK_THAT(refusal({{"pp", 4}, {"tp", 1}}, false), Contains("has nothing that fits adam#0"));
  // Of four stages in two workers' places, two.
  const auto half = [&] {
    auto cluster = Cluster::in_process(4, hosting<LayoutStage>(), {.checkpoints = at.again});
    const Mesh mesh(*cluster, {{"pp", 4}, {"tp", 1}});
    const auto stage = cluster->spawn<LayoutStage>("w1", mesh);
    optim::Distributed<optim::Adam> optimizer({stage}, {.lr = 0.02});
    Job job(*cluster);
    for (const int64_t step : job.steps(kLayoutSteps)) (void)step;
  };
  CHECK_THAT(error_of(half).what(), Contains("block0.down.bias, and no actor of this program"));
}
