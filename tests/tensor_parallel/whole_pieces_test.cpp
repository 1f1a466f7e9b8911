// One file of a model that replicas divide among them, and pieces that are filled from one: as in one
// process.
#include <catch2/catch.hpp>
#include <deque>
#include <fstream>
#include <iterator>

#include "data/formats/safetensors.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "troupe/pipeline.h"
#include "troupe/replicas.h"
#include "troupe/tensor_parallel.h"

using namespace troupe;
using namespace troupe::testing;
using parallel::Shard;
using parallel::split;
using State = std::map<std::string, Tensor>;

namespace {

// A layer with a parameter that has no elements.
struct WithNone : nn::Layer {
  Tensor forward(const Tensor& x) override { return x * factor + ops::sum(none); }
  void members(nn::Members& m) override { m("none", none), m("factor", factor); }
  Tensor none = zeros({0, 4}).requires_grad_(), factor = ones({3}).requires_grad_();
};

// What PiecesNet is without parts, with the same names.
struct PlainNet : nn::Module {
  void members(nn::Members& m) override {
    m("first", first), m("second", second), m("end", end), m("scale", scale), m("shift", shift);
    m.buffer("seen", seen);
  }
  WithNone end;
  nn::Linear first{5, 7}, second{7, 3};
  Tensor scale = ones({7}).requires_grad_(), shift = zeros({}).requires_grad_(), seen = zeros({2});
};

// Of four replicas some have no element of a bias.
struct PiecesNet : nn::Module {
  Task<Tensor> operator()(Tensor x) {
    Tensor h = co_await first(x);
    h = ops::tanh(h) * scale + shift;
    h = co_await second(h);
    co_return co_await end(h);
  }
  void members(nn::Members& m) override {
    m("first", first), m("second", second), m("end", end), m("scale", scale), m("shift", shift);
    m.buffer("seen", seen);
  }
  parallel::Sharded<nn::Linear> first{5, 7}, second{7, 3};
  parallel::Sharded<WithNone> end;
  Tensor scale = ones({7}).requires_grad_(), shift = zeros({}).requires_grad_();
  Tensor seen = zeros({2});
};
struct PiecesReplica : nn::ModuleActor<PiecesNet> {
  Task<Tensor> forward(Tensor x) {
    const Tensor out = co_await net(x);
    co_return out;
  }
  static constexpr auto remote = methods<&PiecesReplica::forward>;
};

struct PiecesTied : nn::ModuleActor<PiecesNet> {
  explicit PiecesTied(Mesh) {}
  Task<Tensor> forward(Tensor x) {
    const Tensor out = co_await net(x);
    co_return out;
  }
  static constexpr auto remote = methods<&PiecesTied::forward>;
};

// A transformer of two blocks on a mesh.
constexpr int64_t kPiecesWords = 11, kPiecesWidth = 12;
struct PiecesPart : nn::Module {
  explicit PiecesPart(const Mesh& mesh) {
    const nn::TransformerEncoderLayerOptions options{.dim_feedforward = 20, .dropout = 0, .norm_first = true};
    const Group tp = mesh["tp"];
    const parallel::StageLayers own(mesh, 2);
    if (own.first()) tokens.emplace(tp, kPiecesWords, kPiecesWidth);
    for (const size_t b : own) blocks.try_emplace(b, tp, kPiecesWidth, 4, options);
    if (own.last()) norm.emplace(kPiecesWidth), head.emplace(tp, kPiecesWidth, kPiecesWords);
  }
  Task<Tensor> forward(Tensor x) {
    if (tokens) x = co_await (*tokens)(x);
    for (auto& [number, block] : blocks) x = co_await block(x);
    if (head) x = co_await (*head)((*norm)(x));
    co_return x;
  }
  Task<Tensor> loss(Tensor logits, Tensor next) { return head->module.cross_entropy(logits, next); }
  void members(nn::Members& m) override {
    if (tokens) m("tokens", *tokens);
    for (auto& [number, block] : blocks) m("block" + std::to_string(number), block);
    if (head) m("norm", *norm), m("head", *head);
  }
  std::optional<parallel::Sharded<tp::VocabularyEmbedding>> tokens;
  std::map<size_t, parallel::Sharded<tp::TransformerEncoderLayer>> blocks;
  std::optional<nn::LayerNorm> norm;
  std::optional<parallel::Sharded<tp::Head>> head;
};
using PiecesStage = parallel::ModuleStage<PiecesPart>;

// Eight matrices, all but alone in the model.
struct WideNet : nn::Module {
  Task<Tensor> operator()(Tensor x) {
    for (auto& layer : layers) x = co_await layer(x);
    co_return x;
  }
  void members(nn::Members& m) override {
    for (size_t i = 0; i < layers.size(); ++i) m(std::to_string(i), layers[i]);
  }
  WideNet() {
    for (int i = 0; i < 8; ++i) layers.emplace_back(kWide, kWide);
  }
  std::deque<parallel::Sharded<nn::Linear>> layers;
  static constexpr int64_t kWide = 512;
};
struct WideReplica : nn::ModuleActor<WideNet> {
  Task<Tensor> forward(Tensor x) {
    const Tensor out = co_await net(x);
    co_return out;
  }
  static constexpr auto remote = methods<&WideReplica::forward>;
};

std::string bytes_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Other values for all, of the same names and shapes.
State other_values(const State& like, uint64_t seed) {
  Generator random(seed);
  State out;
  for (const auto& [name, t] : like) out[name] = ops::randn(t.shape(), random) * 0.3;
  return out;
}

void check_bits(const State& a, const State& b) {
  REQUIRE(a.size() == b.size());
  for (const auto& [name, t] : a) {
    CAPTURE(name);
    REQUIRE(b.contains(name));
    CHECK(bit_equal(t, b.at(name)));
  }
}

}  // namespace

TEST_CASE("replicas take a whole file into their pieces, and one file is made of these, bit by bit") {
  const Folder folder;
  const std::string given = (folder.path / "given.safetensors").string(),
                    again = (folder.path / "again.safetensors").string();
  auto cluster = Cluster::in_process(4, hosting<PiecesReplica>());
  const auto workers = cluster->workers();
  const auto alone = cluster->spawn<PiecesReplica>("w0");
  const State values = other_values(PlainNet().state_dict(), 11);
  datasets::write_safetensors(given, values);
  parallel::load_whole({alone}, given);
  check_bits(nn::remote_state_dict(alone).get(), values);
  Generator random(3);
  const Tensor x = ops::randn({8, 5}, random);
  const auto result = [&](const auto& f) {
    const NoGradGuard off;
    return f().get();
  };
  const Tensor out = result([&] { return alone.call<&PiecesReplica::forward>(x); });
  parallel::gather_to({alone}, again);
  const std::string bytes = bytes_of(again);

  for (const Shard shard : {Shard::none, Shard::state, Shard::gradients, Shard::all})
    for (const size_t n : {1, 2, 3, 4}) {
      INFO(parallel::word(shard) << " on " << n);
      const Group group(*cluster, {workers.begin(), workers.begin() + std::ptrdiff_t(n)});
      parallel::DataParallel<PiecesReplica> net(
          cluster->here(), group,
          parallel::DataParallelOptions{.buckets = {.first = 64, .others = 200}, .shard = shard});
      parallel::load_whole(net, given);  // while they join
      check_bits(net.state_dict().get(), values);
      CHECK(ops::allclose(result([&] { return net(x); }), out));
      parallel::gather_to(net, again);
      CHECK(bytes_of(again) == bytes);
      if (shard != Shard::all || n < 2) continue;
      std::vector<AnyRef> some = net;
      some.pop_back();
      CHECK_THAT(invalid_text([&] { parallel::gather_to(some, again); }), Catch::Contains("give all ranks"));
      CHECK(bytes_of(again) == bytes);
      // After a step the pieces are what is read; a refused file changes none.
      optim::Distributed<optim::AdamW> optimizer(net, {.lr = 0.1});
      {
        autograd::Context context(*cluster);
        context.backward(ops::sum(net(x).get()));
        optimizer.step(context);
      }
      const State trained = net.state_dict().get();
      CHECK_FALSE(bit_equal(trained.at("second.bias"), values.at("second.bias")));
      parallel::gather_to(net, again);
      check_bits(trained, datasets::read_safetensors(again));
      State wrong = values;
      wrong.at("second.bias") = ones({4});
      datasets::write_safetensors(again, wrong);
      CHECK_THAT(invalid_text([&] { parallel::load_whole(net, again); }),
                 Catch::Contains("second.bias is [4]"));
      check_bits(net.state_dict().get(), trained);
    }
}

TEST_CASE("stages on a mesh with Shard::all take a whole file, and one file is made of them") {
  const Folder folder;
  const std::string given = (folder.path / "given.safetensors").string(),
                    again = (folder.path / "again.safetensors").string();
  Generator random(5);
  const Tensor x = ops::randint(0, kPiecesWords, {12, 3}, random),
               y = ops::randint(0, kPiecesWords, {12, 3}, random);
  State values;
  double loss = 0;
  std::string bytes;
  struct Way {
    size_t dp, pp, tp;
    Shard shard;
    parallel::Per gather;
  };
  using parallel::Per;
  for (const auto& [dp, pp, tp, shard, gather] :
       {Way{1, 1, 1, Shard::none, Per::use}, Way{2, 1, 1, Shard::all, Per::use},
        Way{4, 1, 1, Shard::all, Per::step}, Way{3, 2, 1, Shard::all, Per::use},
        Way{3, 1, 2, Shard::all, Per::step}, Way{2, 2, 3, Shard::all, Per::use},
        Way{2, 2, 2, Shard::gradients, Per::use}}) {
    INFO("dp " << dp << ", pp " << pp << ", tp " << tp);
    auto cluster = Cluster::in_process(int(dp * pp * tp), hosting<PiecesStage>());
    const auto model =
        parallel::spawn<PiecesStage>(cluster->here(), Mesh(*cluster, {{"dp", dp}, {"pp", pp}, {"tp", tp}}));
    if (values.empty()) {
      values = other_values(nn::remote_state_dict(model.actors()[0]).get(), 12);
      datasets::write_safetensors(given, values);
    }
    parallel::Pipelines train(cluster->here(), model, {.micro_batches = 2, .shard = shard, .gather = gather});
    parallel::load_whole(model, given);  // while they join
    parallel::gather_to(model, again);
    check_bits(datasets::read_safetensors(again), values);
    if (bytes.empty()) bytes = bytes_of(again);
    CHECK(bytes_of(again) == bytes);
    const auto step = [&] { return train.step(Value(x), Value(y)).loss; };
    autograd::Context context(*cluster);
    const double here = step();
    if (loss == 0) loss = here;
    CHECK(std::abs(here - loss) <= 1e-5 * loss);
    // Parts that were gathered for the whole context are not, once others are loaded.
    const State fresh = other_values(values, 13);
    datasets::write_safetensors(again, fresh);
    parallel::load_whole(model, again);
    const double changed = step();
    CHECK(std::abs(changed - loss) > 1e-3);
    parallel::load_whole(model, given);
    CHECK(std::abs(step() - loss) <= 1e-5 * loss);
  }
}

TEST_CASE("values that are given while replicas join are what they begin with, ties included") {
  auto cluster = Cluster::in_process(4, hosting<PiecesTied>());
  const Mesh mesh(*cluster, {{"dp", 2}, {"pp", 2}});
  for (int round = 0; round < 20; ++round) {
    const auto model = parallel::spawn<PiecesTied>(cluster->here(), mesh);
    parallel::PipelineOptions options{.shard = Shard::gradients};
    options.tied = {{{0, "scale"}, {1, "scale"}}};
    const auto method = parallel::stage<&PiecesTied::forward>();
    parallel::Pipelines train(cluster->here(), model, method, std::move(options), {});
    std::vector<Future<void>> loaded;
    std::vector<State> given;
    for (const auto& actor : model.actors()) {
      given.push_back(other_values(PiecesNet().state_dict(), uint64_t(100 * round + 7)));
      loaded.push_back(nn::load_remote_state_dict(actor, given.back()));
    }
    all(loaded).get();
    train.ready().get();
    for (size_t i = 0; i < given.size(); ++i)
      check_bits(nn::remote_state_dict(model.actors()[i]).get(), given[i]);
  }
}

TEST_CASE("a model that no worker could hold whole is gathered a parameter at a time") {
  const Folder folder;
  const std::string file = (folder.path / "wide.safetensors").string();
  auto cluster = Cluster::in_process(4, hosting<WideReplica>());
  const auto workers = cluster->workers();
  parallel::DataParallel<WideReplica> net(cluster->here(), Group(*cluster, {workers.begin(), workers.end()}),
                                          parallel::DataParallelOptions{.shard = Shard::all});
  parallel::gather_to(net, file);
  release_cached_memory();  // from here on, cached and used bytes together are the peak
  const size_t before = allocator_stats().in_use;
  parallel::gather_to(net, file);
  const auto after = allocator_stats();
  const size_t peak = after.in_use + after.cached - before, largest = 4 * WideNet::kWide * WideNet::kWide;
  CHECK(peak >= largest);
  CHECK(peak < 4 * largest);  // its pieces, too, which threads keep; the model has eight such
}
