// Layers that are cut over ranks compute what whole ones do.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstdlib>

#include "parallel/mesh/actor_mesh.h"
#include "parallel/mesh/weighted_mean.h"
#include "parallel/tensor/check_ranks.h"
#include "parallel/tensor/transformer.h"
#include "parallel/tensor/vocabulary.h"
#include "tests/support/error_of.h"
#include "tests/support/near.h"
#include "tests/support/nothing_left.h"
#include "troupe/troupe.h"

using namespace troupe;
using Catch::Contains;
using testing::error_of;
using testing::nothing_left;

namespace {

constexpr int64_t kWidth = 12, kHeads = 4, kHidden = 10, kWords = 7;
const nn::TransformerEncoderLayerOptions kBlock{.dim_feedforward = kHidden,
                                                .dropout = 0,
                                                .activation = "gelu",
                                                .norm_first = true,
                                                .causal = true,
                                                .dtype = float64};
nn::TransformerEncoderLayerOptions options_of(bool first, double dropout) {
  nn::TransformerEncoderLayerOptions o = kBlock;
  o.norm_first = first, o.dropout = dropout;
  if (!first) o.activation = "relu";
  return o;
}

// One of each layer.
struct WholeNet : nn::Module {
  explicit WholeNet(bool first, double dropout = 0)
      : words(kWords, kWidth, float64),
        block(kWidth, kHeads, options_of(first, dropout)),
        head(kWidth, kWords, true, float64) {}
  Tensor loss(const Tensor& ids, const Tensor& y) {
    return ops::cross_entropy(ops::reshape(head(block(words(ids))), {-1, kWords}), ops::reshape(y, {-1}));
  }
  void members(nn::Members& m) override { m("words", words), m("block", block), m("head", head); }
  nn::Embedding words;
  nn::TransformerEncoderLayer block;
  nn::Linear head;
};

struct CutNet : nn::Module {
  CutNet(const Group& tp, bool first, double dropout)
      : group(tp),
        words(tp, kWords, kWidth, {.dtype = float64}),
        block(tp, kWidth, kHeads, options_of(first, dropout)),
        head(tp, kWidth, kWords, {.dtype = float64}) {}
  Task<Tensor> loss(Tensor ids, Tensor y) {
    const tp::Part part = words(ids);
    Tensor x = co_await part;
    x = co_await block(x);
    co_return co_await head.cross_entropy(head(x), y);
  }
  // The block has pieces of the sequence.
  Task<Tensor> loss_of_pieces(Tensor ids, Tensor y, std::vector<int64_t> times) {
    const tp::Part part = words(ids);
    Tensor x = co_await part;
    x = tp::cut(x, group, 1, times);
    x = co_await block.of_pieces(x, times);
    const auto joining = tp::join(x, group, 1, times);
    x = co_await joining;
    co_return co_await head.cross_entropy(head(x), y);
  }
  void members(nn::Members& m) override { m("words", words), m("block", block), m("head", head); }
  Group group;
  tp::VocabularyEmbedding words;
  tp::TransformerEncoderLayer block;
  tp::Head head;
};

struct Rank : nn::ModuleActor<CutNet> {
  Rank(Mesh mesh, bool first, double dropout) : ModuleActor(mesh["tp"], first, dropout), mesh(mesh) {}
  Task<Tensor> loss(Tensor ids, Tensor y) { return net.loss(std::move(ids), std::move(y)); }
  Task<Tensor> loss_of_pieces(Tensor ids, Tensor y, std::vector<int64_t> times) {
    return net.loss_of_pieces(std::move(ids), std::move(y), std::move(times));
  }
  std::map<std::string, Tensor> state() { return net.state_dict(); }
  std::map<std::string, Tensor> gradients() {
    std::map<std::string, Tensor> all;
    for (const auto& [name, t] : net.named_parameters())
      if (const Tensor g = autograd::context_gradient(t); g.defined()) all[name] = g;
    return all;
  }
  void load(std::map<std::string, Tensor> whole) { tp::load_whole_state(net, whole); }
  // Its part of what a whole net has of the same names.
  std::map<std::string, Tensor> part_of(std::map<std::string, Tensor> whole) {
    std::map<std::string, Tensor> before = net.state_dict();
    for (auto& [name, t] : before) t = t.clone_data();
    tp::load_whole_state(net, whole);
    std::map<std::string, Tensor> part = net.state_dict();
    for (auto& [name, t] : part) t = t.clone_data();
    net.load_state_dict(before);
    return part;
  }
  void drift() {
    NoGradGuard off;
    net.block.norm1.weight.add_(0.5);
  }
  int64_t coordinate(std::string dim) { return static_cast<int64_t>(mesh.coordinate(dim)); }
  void again(int64_t seed) {
    Generator generator(static_cast<uint64_t>(seed));
    net.reset(generator);
  }
  Mesh mesh;
  static constexpr auto remote =
      methods<&Rank::loss, &Rank::loss_of_pieces, &Rank::state, &Rank::gradients, &Rank::load, &Rank::part_of,
              &Rank::drift, &Rank::coordinate, &Rank::again>;
};

struct FewWordsNet : nn::Module {
  FewWordsNet(const Group& tp, int64_t count)
      : words(tp, count, 4, {.dtype = float64}), head(tp, 4, count, {.dtype = float64}) {}
  Task<Tensor> loss(Tensor ids) {
    const tp::Part part = words(ids);
    const Tensor x = co_await part;
    co_return co_await head.cross_entropy(head(x), ids);
  }
  void members(nn::Members& m) override { m("words", words), m("head", head); }
  tp::VocabularyEmbedding words;
  tp::Head head;
};

struct FewWords : nn::ModuleActor<FewWordsNet> {
  FewWords(Mesh mesh, int64_t count) : ModuleActor(mesh["tp"], count) {}
  Task<Tensor> loss(Tensor ids) { return net.loss(std::move(ids)); }
  void load(std::map<std::string, Tensor> whole) { tp::load_whole_state(net, whole); }
  static constexpr auto remote = methods<&FewWords::loss, &FewWords::load>;
};

Tensor ids_of_test() { return tensor(std::vector<int64_t>{0, 6, 3, 2, 5, 1, 1, 4, 0, 6}).reshape({2, 5}); }
Tensor targets_of_test() {
  return tensor(std::vector<int64_t>{6, 3, 2, 5, 0, 1, 4, 0, 6, 2}).reshape({2, 5});
}

using Model = parallel::ActorMesh<Rank>;

std::vector<std::map<std::string, Tensor>> parts_of(const Model& model,
                                                    const std::map<std::string, Tensor>& whole) {
  return all(model.call<&Rank::part_of>(whole)).get();
}

std::string difference_of(const std::map<std::string, Tensor>& a, const std::map<std::string, Tensor>& b) {
  for (const auto& [name, t] : b) {
    if (!a.contains(name)) return name + " is missing";
    if (const std::string d = difference(a.at(name), t, 1e-9, 1e-11); !d.empty()) return name + ": " + d;
  }
  return a.size() == b.size() ? "" : "there are more";
}

}  // namespace

TEST_CASE("a block, an embedding and a head on several ranks start and train as whole ones") {
  const bool first = GENERATE(true, false);
  for (int n = 1; n <= 5; ++n) {  // five ranks, of which one has no head
    CAPTURE(first, n);
    auto cluster = Cluster::in_process(n + 1, hosting<Rank>());
    std::vector<Place> places;
    for (int r = 1; r <= n; ++r) places.emplace_back(r);
    manual_seed(11);
    const auto seed = current_stream().position();
    const Model model = parallel::spawn<Rank>(
        cluster->here(), Mesh(*cluster, {{"tp", static_cast<size_t>(n)}}, places), first, 0.0);
    SeedStream stream(0);
    stream.set_position(seed);
    SeedStream of_actor(stream.next());
    CallFrame at;
    at.seed_stream = &of_actor;
    std::optional<WholeNet> whole;
    {
      const CallFrameScope scope(at);
      whole.emplace(first);
    }
    CHECK(difference_of(all(model.call<&Rank::state>()).get()[0], parts_of(model, whole->state_dict())[0]) ==
          "");
    {
      autograd::Context context(*cluster);
      const Tensor loss =
          parallel::same_on_all(all(model.call<&Rank::loss>(ids_of_test(), targets_of_test())).get());
      const Tensor expected = whole->loss(ids_of_test(), targets_of_test());
      CHECK(difference(loss.detach(), expected.detach(), 1e-12, 0) == "");
      context.backward(loss);
      expected.backward();
      std::map<std::string, Tensor> gradients;
      double squares = 0;
      for (const auto& [name, t] : whole->named_parameters()) {
        gradients[name] = t.grad();
        squares += ops::sum(ops::mul(t.grad(), t.grad())).item();
      }
      optim::DistributedOptimizer optimizer({model.actors().begin(), model.actors().end()}, "sgd",
                                            {{"lr", 0.1}});
      CHECK(optimizer.clip_grad_norm(context, 1e9) ==
            Approx(std::sqrt(squares)).epsilon(1e-12));  // copies count once
      const auto right = parts_of(model, gradients);
      const auto got = all(model.call<&Rank::gradients>()).get();
      for (size_t r = 0; r < got.size(); ++r) {
        CAPTURE(r);
        std::map<std::string, Tensor> with_elements;  // a rank without heads or words may have no gradient
        for (const auto& [name, t] : right[r])
          if (t.numel()) with_elements[name] = t;
        std::map<std::string, Tensor> mine;
        for (const auto& [name, t] : got[r])
          if (t.numel()) mine[name] = t;
        CHECK(difference_of(mine, with_elements) == "");
      }
      context.end().get();
    }
    nothing_left(*cluster);
    all(model.call<&Rank::again>(5)).get();
    Generator generator(5);
    whole->reset(generator);
    CHECK(difference_of(all(model.call<&Rank::state>()).get()[0], parts_of(model, whole->state_dict())[0]) ==
          "");
  }
}

TEST_CASE("a block of pieces of a sequence does what one of whole sequences does") {
  const bool first = GENERATE(true, false);
  const double dropout = GENERATE(0.0, 0.4);
  const std::vector<std::vector<int64_t>> cuts{{5}, {3, 2}, {0, 5}, {2, 2, 1}, {1, 0, 3, 1}};
  for (const auto& times : cuts) {
    const size_t n = times.size();
    CAPTURE(first, dropout, times);
    auto cluster = Cluster::in_process(static_cast<int>(n) + 1, hosting<Rank>());
    std::vector<Place> places;
    for (size_t r = 1; r <= n; ++r) places.emplace_back(static_cast<int>(r));
    const Model model =
        parallel::spawn<Rank>(cluster->here(), Mesh(*cluster, {{"tp", n}}, places), first, dropout);
    Tensors losses;
    std::vector<std::vector<std::map<std::string, Tensor>>> gradients;
    for (const bool pieces : {false, true}) {
      all(model.call<&Rank::again>(5)).get();  // masks, too
      autograd::Context context(*cluster);
      const Tensor loss = parallel::same_on_all(
          pieces ? all(model.call<&Rank::loss_of_pieces>(ids_of_test(), targets_of_test(), times)).get()
                 : all(model.call<&Rank::loss>(ids_of_test(), targets_of_test())).get());
      context.backward(loss);
      losses.push_back(loss.detach());
      gradients.push_back(all(model.call<&Rank::gradients>()).get());
    }
    CHECK(difference(losses[1], losses[0], 1e-12, 0) == "");
    for (size_t r = 0; r < n; ++r) CHECK(difference_of(gradients[1][r], gradients[0][r]) == "");
    nothing_left(*cluster);
  }
}

TEST_CASE("a vocabulary of fewer words than ranks") {
  for (const int64_t words : {1, 2}) {
    const Tensor ids = tensor(std::vector<int64_t>{0, words - 1, 0, words - 1}).reshape({2, 2});
    nn::Embedding embedding(words, 4, float64);
    nn::Linear head(4, words, true, float64);
    const std::map<std::string, Tensor> whole{{"words.weight", embedding.weight.detach()},
                                              {"head.weight", head.weight.detach()},
                                              {"head.bias", head.bias.detach()}};
    const Tensor expected =
        ops::cross_entropy(ops::reshape(head(embedding(ids)), {-1, words}), ops::reshape(ids, {-1}));
    expected.backward();
    double squares = 0;
    for (const Tensor& t : {embedding.weight, head.weight, head.bias})
      squares += ops::sum(ops::square(t.grad())).item();
    for (int n = 1; n <= 4; ++n) {
      CAPTURE(words, n);
      const auto cluster = Cluster::in_process(n, hosting<FewWords>());
      {
        const auto model = parallel::spawn<FewWords>(cluster->here(),
                                                     Mesh(*cluster, {{"tp", static_cast<size_t>(n)}}), words);
        all(model.call<&FewWords::load>(whole)).get();
        optim::Distributed<optim::SGD> optimizer(model, {.lr = 0.1});
        autograd::Context step(*cluster);
        const Tensor loss = parallel::same_on_all(all(model.call<&FewWords::loss>(ids)).get());
        CHECK(difference(loss.detach(), expected.detach(), 1e-12, 0) == "");
        step.backward(loss);
        CHECK(optimizer.clip_grad_norm(step, 1e9) == Approx(std::sqrt(squares)).epsilon(1e-12));
        optimizer.step(step);
      }
      nothing_left(*cluster);
    }
  }
}

TEST_CASE("dropout of what is whole has the masks of one process, and ranks agree") {
  auto cluster = Cluster::in_process(3, hosting<Rank>());
  const Model model =
      parallel::spawn<Rank>(cluster->here(), Mesh(*cluster, {{"tp", 2}}, {"w1", "w2"}), true, 0.3);
  std::vector<double> losses;
  for (int i = 0; i < 4; ++i) {
    autograd::Context context(*cluster);
    const Tensor loss =
        parallel::same_on_all(all(model.call<&Rank::loss>(ids_of_test(), targets_of_test())).get());
    losses.push_back(loss.item());
    context.backward(loss);
  }
  CHECK(losses[0] != losses[1]);  // other masks each time
}

TEST_CASE("with TROUPE_CHECK_RANKS a rank that has drifted is named, with layer and direction") {
  setenv("TROUPE_CHECK_RANKS", "1", 1);
  {
    auto cluster = Cluster::in_process(3, hosting<Rank>());
    const Model model =
        parallel::spawn<Rank>(cluster->here(), Mesh(*cluster, {{"tp", 2}}, {"w1", "w2"}), true, 0.0);
    {
      autograd::Context context(*cluster);
      const auto losses = all(model.call<&Rank::loss>(ids_of_test(), targets_of_test())).get();
      context.backward(parallel::same_on_all(losses), {}, {.retain_graph = true});
      // As if each rank had a loss of its own.
      const Error e = error_of([&] { context.backward(losses[0] + losses[1] * 2.0); });
      CHECK_THAT(e.what(), Contains("of cross_entropy") && Contains("rank 1 (w2)") && Contains("backward"));
    }
    model.actors()[1].call<&Rank::drift>().get();
    autograd::Context context(*cluster);
    const Error e = error_of([&] { all(model.call<&Rank::loss>(ids_of_test(), targets_of_test())).get(); });
    CHECK(e.kind() == ErrorKind::invalid);
    CHECK_THAT(e.what(), Contains("enter 1 of Attention(12, 4 heads)") && Contains("rank 1 (w2)") &&
                             Contains("forward"));
  }
  setenv("TROUPE_CHECK_RANKS", "maybe", 1);
  CHECK_THAT(testing::text_of([] { tp::checks_ranks(); }), Contains("TROUPE_CHECK_RANKS is \"maybe\""));
  unsetenv("TROUPE_CHECK_RANKS");
}

TEST_CASE("a mesh of actors: coordinates, arguments along a dimension, lists of results") {
  auto cluster = Cluster::in_process(4, hosting<Rank>());
  const Mesh workers(*cluster, {{"dp", 2}, {"tp", 2}});
  const Model model = parallel::spawn<Rank>(cluster->here(), workers, true, 0.0);
  CHECK(all(model.call<&Rank::coordinate>(std::string("dp"))).get() == std::vector<int64_t>{0, 0, 1, 1});
  CHECK(all(model.call<&Rank::coordinate>(std::string("tp"))).get() == std::vector<int64_t>{0, 1, 0, 1});
  CHECK(
      all(model.call<&Rank::coordinate>(parallel::along("dp", std::vector<std::string>{"dp", "tp"}))).get() ==
      std::vector<int64_t>{0, 0, 0, 1});
  CHECK(model.at("dp", 1).at("tp", 0).only() == model.actors()[2]);
  const std::vector<int> all_of{0, 1, 2, 3};
  CHECK(model.lists("tp", all_of) == std::vector<std::vector<int>>{{0, 1}, {2, 3}});
  CHECK(model.lists("dp", all_of) == std::vector<std::vector<int>>{{0, 2}, {1, 3}});
  CHECK_THAT(testing::invalid_text([&] { model.only(); }), Contains("there are 4 actors (dp 2 x tp 2)"));
  CHECK_THAT(testing::invalid_text([&] { model.at("pp", 0); }),
             Contains("there is no dimension pp. There are: dp 2 x tp 2"));
  CHECK_THAT(testing::invalid_text([&] { model.at("dp", 2); }),
             Contains("give a coordinate below that, not 2"));
  CHECK_THAT(testing::invalid_text([&] { model.lists("dp", std::vector<int>{1}); }),
             Contains("1 values of 4 actors"));
  CHECK_THAT(testing::invalid_text([&] {
               (void)model.call<&Rank::coordinate>(parallel::along("dp", std::vector<std::string>{"dp"}));
             }),
             Contains("1 values along dimension dp, which has size 2"));
  // Two models on the same workers do not meet.
  const Model other = parallel::spawn<Rank>(cluster->here(), workers, true, 0.0);
  autograd::Context context(*cluster);
  const auto a = model.call<&Rank::loss>(ids_of_test(), targets_of_test()),
             b = other.call<&Rank::loss>(targets_of_test(), ids_of_test());
  const auto of_a = all(a).get(), of_b = all(b).get();
  for (const Tensor& t : of_a) CHECK(t.equal(of_a[0]));
  for (const Tensor& t : of_b) CHECK(t.equal(of_b[0]));
  CHECK(of_a[0].item() != of_b[0].item());
}

TEST_CASE("what does not fit a cut layer is refused") {
  const Group none;
  CHECK_THAT(testing::invalid_text([&] {
               tp::ColumnLinear(none, 3, 4, {.sizes = {1, 3}});
             }),
             Contains("[column_linear] sizes [1, 3] do not cut 4 for 1 ranks"));
  tp::VocabularyEmbedding words(none, 4, 2);
  CHECK_THAT(testing::invalid_text([&] {
               (void)words(tensor(std::vector<int64_t>{0, 4}));
             }),
             Contains("[vocabulary_embedding] 4 is none of 4"));
  tp::Attention attention(none, 4, 2);
  CHECK_THAT(testing::invalid_text([&] {
               (void)attention(zeros({2, 4}));
             }),
             Contains("expected [batch, time, 4]"));
  tp::ColumnLinear linear(none, 3, 4);
  CHECK_THAT(testing::invalid_text([&] {
               tp::load_whole_state(linear, {{"weight", zeros({3, 4})}, {"bias", zeros({4})}});
             }),
             Contains("weight is float32 [3, 4] in the state, and [4, 3] in the module"));
}
