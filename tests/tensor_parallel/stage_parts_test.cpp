// Stages whose parts are whole only while they run: the bits of stages that are whole, and PyTorch's losses.
#include <catch2/catch.hpp>

#include <cstring>
#include <map>
#include <optional>

#include "parallel/pipeline/pipelines.h"
#include "parallel/sharded/sharded.h"
#include "parallel/tensor/transformer.h"
#include "parallel/tensor/vocabulary.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "tests/support/trajectory.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace troupe::testing;
using parallel::Shard;
using parallel::Sharded;

namespace {

constexpr int64_t kBlocksOfAll = 4;

// What lies before the one sum of each half of a block, which is a part of its own.
struct Attend : nn::Module {
  explicit Attend(const Group& tp) : attention(tp, 64, 4, {.causal = true}) {}
  tp::Part operator()(const Tensor& x) { return attention(norm(x)); }
  void members(nn::Members& m) override { m("norm1", norm), m("self_attn", attention); }
  nn::LayerNorm norm{64};
  tp::Attention attention;
};
struct Feed : nn::Module {
  explicit Feed(const Group& tp) : up(tp, 64, 256), down(tp, 256, 64) {}
  tp::Part operator()(const Tensor& x) { return down(ops::gelu(up(norm(x)))); }
  void members(nn::Members& m) override { m("norm2", norm), m("linear1", up), m("linear2", down); }
  nn::LayerNorm norm{64};
  tp::ColumnLinear up;
  tp::RowLinear down;
};
struct Block : nn::Module {
  explicit Block(const Group& tp) : attend(tp), feed(tp) {}
  Task<Tensor> operator()(Tensor x) {
    x = x + co_await attend(x);
    co_return x + co_await feed(x);
  }
  void members(nn::Members& m) override { m("attend", attend), m("feed", feed); }
  Sharded<Attend> attend;
  Sharded<Feed> feed;
};
struct Words : nn::Module {
  Words(const Group& tp, int64_t vocabulary) : tok(tp, vocabulary, 64) {}
  tp::Part operator()(const Tensor& ids) { return tok(ids); }
  void members(nn::Members& m) override { m("tok", tok); }
  tp::VocabularyEmbedding tok;
};
struct Top : nn::Module {
  Top(const Group& tp, int64_t vocabulary) : head(tp, 64, vocabulary) {}
  Tensor operator()(const Tensor& x) { return head(norm(x)); }
  void members(nn::Members& m) override { m("norm", norm), m("head", head); }
  nn::LayerNorm norm{64};
  tp::Head head;
};

// Some of the blocks, with what is before the first and behind the last. Positions are in no part.
struct StageNet : nn::Module {
  StageNet(const Mesh& mesh, int64_t vocabulary) {
    const Group tp = mesh["tp"];
    const size_t stage = mesh.coordinate("pp"), stages = mesh.size("pp");
    if (stage == 0) words.emplace(tp, vocabulary), pos = zeros({64, 64}).requires_grad_();
    for (size_t b = 0; b < kBlocksOfAll; ++b)
      if (b * stages / kBlocksOfAll == stage) blocks.try_emplace(b, tp);
    if (stage + 1 == stages) top.emplace(tp, vocabulary);
  }
  Task<Tensor> forward(Tensor x) {
    if (words) {
      x = co_await (*words)(x);
      x = x + pos;
    }
    for (auto& [number, block] : blocks) x = co_await block(x);
    if (top) x = co_await (*top)(x);
    co_return x;
  }
  void members(nn::Members& m) override {
    if (words) m("words", *words), m("pos", pos);
    for (auto& [number, block] : blocks) m("block" + std::to_string(number), block);
    if (top) m("top", *top);
  }
  std::optional<Sharded<Words>> words;
  Tensor pos;
  std::map<size_t, Block> blocks;
  std::optional<Sharded<Top>> top;
};

// Of a parameter in the parts.
std::string name_of_run(std::string name) {
  for (const char* within : {"module.", "attend.", "feed.", "words.", "top."})
    if (const size_t at = name.find(within); at != std::string::npos) name.erase(at, std::strlen(within));
  return name == "tok.weight" ? "tok" : name;
}

using Values = std::map<std::string, Tensor>;

struct PartStage : nn::ModuleActor<StageNet> {
  PartStage(Mesh mesh, int64_t vocabulary) : ModuleActor(mesh, vocabulary) {}
  Task<Tensor> forward(Tensor x) { return net.forward(std::move(x)); }
  Task<Tensor> loss(Tensor logits, Tensor y) {
    return net.top->module.head.cross_entropy(std::move(logits), std::move(y));
  }
  void load(Values whole) {
    Values own;
    for (const auto& [name, parameter] : net.named_parameters()) own[name] = whole.at(name_of_run(name));
    tp::load_whole_state(net, own);
  }
  static constexpr auto remote = methods<&PartStage::forward, &PartStage::loss, &PartStage::load>;
};

// A model on a mesh, with the initial values of a run.
struct OnMesh {
  OnMesh(const Run& of, std::vector<MeshDim> dims, const parallel::PipelineOptions& options)
      : run(of),
        in_parts(options.shard == Shard::all),
        cluster(Cluster::in_process(static_cast<int>(workers_in(dims)) + 1, hosting<PartStage>())) {
    std::vector<Place> places;
    for (size_t i = 1; i <= workers_in(dims); ++i) places.emplace_back(i);
    model.emplace(parallel::spawn<PartStage>(cluster->here(), Mesh(*cluster, dims, places),
                                             run.parameters[0].shape[0]));
    Values start;
    for (size_t i = 0; i < run.parameters.size(); ++i)
      start[run.parameters[i].name] = initial(run.parameters[i], static_cast<int>(i));
    all(model->call<&PartStage::load>(start)).get();
    train.emplace(cluster->here(), *model,
                  parallel::stage<&PartStage::forward>().with_loss<&PartStage::loss>(), options);
    optimizer.emplace(std::vector<AnyRef>(model->actors().begin(), model->actors().end()), run.optimizer,
                      run.options);
  }
  static size_t workers_in(const std::vector<MeshDim>& dims) {
    size_t n = 1;
    for (const MeshDim& d : dims) n *= d.size;
    return n;
  }
  // The loss; `rows` of the batch, if that is not 0.
  double step(size_t number, int64_t rows = 0, double clips_at = 0) {
    auto [x, y] = batch(run, static_cast<int>(number));
    if (rows) x = x.slice(0, 0, rows), y = y.slice(0, 0, rows);
    autograd::Context context(*cluster);
    const double loss = train->step(Value(x), Value(y)).loss;
    if (clips_at > 0) norm = optimizer->clip_grad_norm(context, clips_at);
    optimizer->step(context);
    return loss;
  }
  // Of each actor; pieces of the replicas of a parameter put together.
  std::vector<Values> parameters() {
    std::map<std::vector<size_t>, std::map<std::string, Tensors>> of;
    const parallel::Points points = model->points();
    for (size_t i = 0; i < model->actors().size(); ++i)
      for (const auto& [name, value] : nn::remote_parameters(model->actors()[i]).get())
        of[{points.coordinate(i, "pp"), points.coordinate(i, "tp")}][name].push_back(value);
    std::vector<Values> out;
    for (auto& [at, named] : of) {
      out.emplace_back();
      for (auto& [name, parts] : named) {
        const bool whole = !in_parts || name == "pos";
        Tensors pieces;
        for (const Tensor& t : parts)
          if (t.defined() && (pieces.empty() || !whole)) pieces.push_back(t.reshape({-1}));
        out.back()[name] = ops::cat(pieces, 0);
      }
    }
    return out;
  }
  Run run;
  bool in_parts;
  std::unique_ptr<Cluster> cluster;
  std::optional<parallel::ActorMesh<PartStage>> model;
  std::optional<parallel::Pipelines> train;
  std::optional<optim::DistributedOptimizer> optimizer;
  double norm = 0;
};

void follow_parts(const Run& run, const std::vector<MeshDim>& dims, const parallel::PipelineOptions& options,
                  size_t steps) {
  CAPTURE(run.str(), OnMesh::workers_in(dims), options.schedule);
  OnMesh on(run, dims, options);
  std::vector<double> losses;
  for (size_t step = 0; step < std::min(steps, run.losses.size()); ++step) losses.push_back(on.step(step));
  const auto [distance, step] = farthest(run, losses, float32);
  INFO("largest difference at step " << step);
  CHECK(distance <= tolerance(run, float32));
  nothing_left(*on.cluster);
}

}  // namespace

TEST_CASE("replicas of stages that are made of parts follow PyTorch's losses", "[trajectory][oracle]") {
  for (const Run& run : transformer_runs("generated")) {
    for (const char* schedule : {"1f1b", "zb-h1", "credits(2)"})
      follow_parts(run, {{"dp", 2}, {"pp", 2}, {"tp", 1}},
                   {.schedule = schedule, .micro_batches = 3, .shard = Shard::all}, 20);
    for (const char* schedule : {"1f1b", "credits(2)"})
      follow_parts(run, {{"dp", 2}, {"pp", 2}, {"tp", 2}},
                   {.schedule = schedule, .micro_batches = 2, .shard = Shard::all}, 20);
    follow_parts(run, {{"tp", 1}, {"pp", 2}, {"dp", 3}}, {.micro_batches = 4, .shard = Shard::all}, 20);
  }
}

TEST_CASE("with steps of one pass, stages of parts have the bits of whole stages, and norms are the same") {
  const Run run = transformer_runs("generated").at(0);
  const size_t dp = GENERATE(2, 3), tp = GENERATE(1, 2);
  std::vector<Values> want;
  double norm = 0, same = 0;
  for (const Shard shard : {Shard::none, Shard::state, Shard::gradients, Shard::all}) {
    INFO(word(shard) << " on " << dp << " x 2 x " << tp);
    OnMesh on(run, {{"dp", dp}, {"pp", 2}, {"tp", tp}}, {.micro_batches = 1, .shard = shard});
    for (const int64_t rows : {8, 7, 4}) on.step(0, rows);
    const auto got = on.parameters();
    if (want.empty()) want = got;
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < got.size(); ++i)
      for (const auto& [name, value] : got[i]) {
        INFO(name << " of " << i);
        CHECK(bit_equal(value, want[i].at(name)));
      }
    // Copies, and pieces of them, count once.
    const double loss = on.step(1, 0, 1e-3);
    if (norm == 0) norm = on.norm, same = loss;
    CHECK(on.norm == Approx(norm).epsilon(1e-5));
    CHECK(loss == same);
    nothing_left(*on.cluster);
  }
}

TEST_CASE("what stages of parts cannot do is refused") {
  const Run run = transformer_runs("generated").at(0);
  const auto refuses = [&](const parallel::PipelineOptions& options, const std::string& part) {
    const auto error = error_of([&] { OnMesh(run, {{"dp", 2}, {"pp", 2}, {"tp", 1}}, options).step(0); });
    CHECK(error.kind() == ErrorKind::invalid);
    CHECK_THAT(error.what(), Catch::Contains(part));
  };
  refuses({.checkpoint = parallel::Checkpoint::always, .shard = Shard::all}, "use Checkpoint::never");
  refuses({.tied = {{{0, "pos"}, {1, "pos"}}}, .shard = Shard::all}, "leave out the ties");
}
