// Runs whose layers are cut over ranks, alone and beside replicas, follow PyTorch's losses step by step.
#include <catch2/catch.hpp>

#include <deque>
#include <optional>

#include "parallel/context/transformer.h"
#include "parallel/mesh/actor_mesh.h"
#include "parallel/mesh/weighted_mean.h"
#include "parallel/pipeline/pipelines.h"
#include "parallel/tensor/transformer.h"
#include "parallel/tensor/vocabulary.h"
#include "tests/support/nothing_left.h"
#include "tests/support/trajectory.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

struct MlpNet : nn::Module {
  MlpNet(const Group& tp, DType dtype)
      : fc0(tp, 784, 128, {.dtype = dtype}),
        fc1(tp, 128, 64, {.dtype = dtype}),
        fc2(tp, 64, 10, {.dtype = dtype}) {}
  Task<Tensor> loss(Tensor x, Tensor y) {
    const tp::Part part = fc1(ops::relu(fc0(x)));
    Tensor h = co_await part;
    co_return co_await fc2.cross_entropy(fc2(ops::relu(h)), y);
  }
  void members(nn::Members& m) override { m("fc0", fc0), m("fc1", fc1), m("fc2", fc2); }
  tp::ColumnLinear fc0;
  tp::RowLinear fc1;
  tp::Head fc2;
};

nn::TransformerEncoderLayerOptions gpt(DType dtype) {
  return {.dim_feedforward = 256,
          .dropout = 0,
          .activation = "gelu",
          .norm_first = true,
          .causal = true,
          .dtype = dtype};
}

// Width 64, 4 heads, 4 pre-norm blocks, context 64.
struct GptNet : nn::Module {
  GptNet(const Group& tp, int64_t vocabulary, DType dtype)
      : tok(tp, vocabulary, 64, {.dtype = dtype}),
        norm(64, {.dtype = dtype}),
        head(tp, 64, vocabulary, {.dtype = dtype}) {
    pos = zeros({64, 64}, dtype).requires_grad_();
    for (int i = 0; i < 4; ++i) blocks.emplace_back(tp, 64, 4, gpt(dtype));
  }
  Task<Tensor> loss(Tensor ids, Tensor y) {
    const tp::Part part = tok(ids);
    Tensor x = co_await part;
    x = x + pos;
    for (auto& block : blocks) x = co_await block(x);
    co_return co_await head.cross_entropy(head(norm(x)), y);
  }
  void members(nn::Members& m) override {
    m("tok", tok), m("pos", pos);
    for (size_t i = 0; i < blocks.size(); ++i) m("block" + std::to_string(i), blocks[i]);
    m("norm", norm), m("head", head);
  }
  tp::VocabularyEmbedding tok;
  Tensor pos;
  std::deque<tp::TransformerEncoderLayer> blocks;
  nn::LayerNorm norm;
  tp::Head head;
};

// The same, whose norms and residuals have pieces of the sequence.
struct PiecesGptNet : GptNet {
  PiecesGptNet(const Group& tp, int64_t vocabulary, DType dtype) : GptNet(tp, vocabulary, dtype), group(tp) {}
  Task<Tensor> loss(Tensor ids, Tensor y) {
    const tp::Part part = tok(ids);
    Tensor x = co_await part;
    const auto times = tp::even_sizes(64, group.size());
    x = tp::cut(x + pos, group, 1, times);
    for (auto& block : blocks) x = co_await block.of_pieces(x, times);
    const auto joining = tp::join(x, group, 1, times);
    x = co_await joining;
    co_return co_await head.cross_entropy(head(norm(x)), y);
  }
  Group group;
};

// Nothing is cut but the sequence.
struct ContextGptNet : nn::Module {
  ContextGptNet(const Group& cp, int64_t vocabulary, DType dtype, bool ring)
      : group(cp), tok(vocabulary, 64, dtype), norm(64, {.dtype = dtype}), head(64, vocabulary, true, dtype) {
    pos = zeros({64, 64}, dtype).requires_grad_();
    for (int i = 0; i < 4; ++i)
      blocks.emplace_back(cp, 64, 4, gpt(dtype), ring ? cp::Way::ring : cp::Way::heads);
  }
  Task<Tensor> loss(Tensor ids, Tensor y) {
    const cp::Sequence sequence(64, group.size());
    const size_t rank = group.rank();
    Tensor x = ops::embedding(sequence.piece(ids, 1, rank), tp::enter(tok.weight, group)) +
               sequence.piece(tp::enter(pos, group), 0, rank);
    for (auto& block : blocks) x = co_await block(x, sequence);
    nn::LayerNorm own = norm;
    own.weight = tp::enter(norm.weight, group), own.bias = tp::enter(norm.bias, group);
    const Tensor logits = ops::linear(own(x), tp::enter(head.weight, group), tp::enter(head.bias, group));
    const Tensor mine = sequence.piece(y, 1, rank);
    const Tensor logs = ops::log_softmax(ops::reshape(logits, {-1, logits.size(2)}), -1);
    const Tensor sum = ops::sum(ops::gather(logs, 1, ops::reshape(mine, {-1, 1})));
    co_return co_await tp::sum(sum * (-1.0 / double(y.numel())), group);
  }
  void members(nn::Members& m) override {
    m("tok", tok), m("pos", pos);
    for (size_t i = 0; i < blocks.size(); ++i) m("block" + std::to_string(i), blocks[i]);
    m("norm", norm), m("head", head);
  }
  Group group;
  nn::Embedding tok;
  Tensor pos;
  std::deque<cp::TransformerEncoderLayer> blocks;
  nn::LayerNorm norm;
  nn::Linear head;
};

// Some of the blocks, with what is before the first and behind the last. Blocks over sequences that are cut
// give the next stage whole ones.
template <class Block>
struct GptPart : nn::Module {
  static constexpr bool kOfSequences = std::is_same_v<Block, cp::TransformerEncoderLayer>;
  GptPart(const Mesh& mesh, int64_t vocabulary, DType dtype)
      : tp(mesh["tp"]), stage(mesh.coordinate("pp")), last(stage + 1 == mesh.size("pp")) {
    const auto counts = tp::even_sizes(4, mesh.size("pp"));
    for (size_t s = 0; s < stage; ++s) first_block += counts[s];
    if (stage == 0) {
      tok.emplace(tp, vocabulary, 64, tp::LinearOptions{.dtype = dtype});
      pos = zeros({64, 64}, dtype).requires_grad_();
    }
    for (int64_t i = 0; i < counts[stage]; ++i) blocks.emplace_back(tp, 64, 4, gpt(dtype));
    if (!last) return;
    norm.emplace(64, nn::LayerNormOptions{.dtype = dtype});
    head.emplace(tp, 64, vocabulary, tp::LinearOptions{.dtype = dtype});
  }
  // Of the last stage: the rank's part of the logits.
  Task<Tensor> forward(Tensor x) {
    if (tok) {
      const tp::Part part = (*tok)(x);
      x = co_await part;
      x = x + pos;
    }
    if constexpr (kOfSequences) {
      const cp::Sequence sequence(64, tp.size());
      x = cp::cut(x, tp, 1, sequence);
      for (auto& block : blocks) x = co_await block(x, sequence);
      const auto joining = cp::join(x, tp, 1, sequence);
      x = co_await joining;
    } else {
      for (auto& block : blocks) x = co_await block(x);
    }
    co_return last ? (*head)((*norm)(x)) : x;
  }
  Task<Tensor> loss(Tensor logits, Tensor y) { return head->cross_entropy(std::move(logits), std::move(y)); }
  void members(nn::Members& m) override {
    if (tok) m("tok", *tok), m("pos", pos);
    for (size_t i = 0; i < blocks.size(); ++i)
      m("block" + std::to_string(static_cast<size_t>(first_block) + i), blocks[i]);
    if (last) m("norm", *norm), m("head", *head);
  }
  Group tp;
  size_t stage;
  bool last;
  int64_t first_block = 0;
  std::optional<tp::VocabularyEmbedding> tok;
  Tensor pos;
  std::deque<Block> blocks;
  std::optional<nn::LayerNorm> norm;
  std::optional<tp::Head> head;
};

using State = std::map<std::string, Tensor>;

// What all models share: initial values, and sums of gradients over replicas.
template <class Net>
struct Rank : nn::ModuleActor<Net> {
  template <class... A>
  explicit Rank(Mesh mesh, A... args) : nn::ModuleActor<Net>(mesh["tp"], args...), dp(mesh["dp"]) {}
  Task<Tensor> loss(Tensor x, Tensor y) { return this->net.loss(std::move(x), std::move(y)); }
  void load(State whole) { tp::load_whole_state(this->net, whole); }
  Task<void> reduce() {
    const Tensors leaves = this->parameters();
    std::vector<Future<Tensor>> sums;
    for (const Tensor& t : leaves) sums.push_back(dp.all_reduce(autograd::context_gradient(t)));
    for (size_t i = 0; i < leaves.size(); ++i) {
      const Tensor sum = co_await sums[i];
      autograd::exchange_context_gradient(leaves[i], sum);
    }
  }
  Group dp;
};
struct Mlp : Rank<MlpNet> {
  Mlp(Mesh mesh, bool doubles) : Rank(mesh, doubles ? float64 : float32), doubles(doubles) {}
  Task<Tensor> loss(Tensor x, Tensor y) { return net.loss(doubles ? x.to(float64) : x, std::move(y)); }
  bool doubles;
  static constexpr auto remote = methods<&Mlp::loss, &Mlp::load, &Mlp::reduce>;
};
struct Gpt : Rank<GptNet> {
  Gpt(Mesh mesh, bool doubles, int64_t vocabulary) : Rank(mesh, vocabulary, doubles ? float64 : float32) {}
  Task<Tensor> loss(Tensor x, Tensor y) { return net.loss(std::move(x), std::move(y)); }
  static constexpr auto remote = methods<&Gpt::loss, &Gpt::load, &Gpt::reduce>;
};

struct PiecesGpt : Rank<PiecesGptNet> {
  PiecesGpt(Mesh mesh, bool doubles, int64_t vocabulary)
      : Rank(mesh, vocabulary, doubles ? float64 : float32) {}
  Task<Tensor> loss(Tensor x, Tensor y) { return net.loss(std::move(x), std::move(y)); }
  static constexpr auto remote = methods<&PiecesGpt::loss, &PiecesGpt::load, &PiecesGpt::reduce>;
};
struct ContextGpt : Rank<ContextGptNet> {
  ContextGpt(Mesh mesh, bool doubles, int64_t vocabulary, bool ring)
      : Rank(mesh, vocabulary, doubles ? float64 : float32, ring) {}
  Task<Tensor> loss(Tensor x, Tensor y) { return net.loss(std::move(x), std::move(y)); }
  static constexpr auto remote = methods<&ContextGpt::loss, &ContextGpt::load, &ContextGpt::reduce>;
};

template <class Block>
struct PieceOf : nn::ModuleActor<GptPart<Block>> {
  PieceOf(Mesh mesh, bool doubles, int64_t vocabulary)
      : nn::ModuleActor<GptPart<Block>>(mesh, vocabulary, doubles ? float64 : float32) {}
  Task<Tensor> forward(Tensor x) { return this->net.forward(std::move(x)); }
  Task<Tensor> loss(Tensor logits, Tensor y) { return this->net.loss(std::move(logits), std::move(y)); }
  void load(State whole) {
    State own;
    for (const auto& [name, parameter] : this->net.named_parameters())
      if (whole.contains(name)) own[name] = whole[name];
    tp::load_whole_state(this->net, own);
  }
};
struct Piece : PieceOf<tp::TransformerEncoderLayer> {
  using PieceOf::PieceOf;
  Task<Tensor> forward(Tensor x) { return PieceOf::forward(std::move(x)); }
  Task<Tensor> loss(Tensor logits, Tensor y) { return PieceOf::loss(std::move(logits), std::move(y)); }
  void load(State whole) { PieceOf::load(std::move(whole)); }
  static constexpr auto remote = methods<&Piece::forward, &Piece::loss, &Piece::load>;
};
struct ContextPiece : PieceOf<cp::TransformerEncoderLayer> {
  using PieceOf::PieceOf;
  Task<Tensor> forward(Tensor x) { return PieceOf::forward(std::move(x)); }
  Task<Tensor> loss(Tensor logits, Tensor y) { return PieceOf::loss(std::move(logits), std::move(y)); }
  void load(State whole) { PieceOf::load(std::move(whole)); }
  static constexpr auto remote = methods<&ContextPiece::forward, &ContextPiece::loss, &ContextPiece::load>;
};

State start_of(const Run& run) {
  State start;
  for (size_t i = 0; i < run.parameters.size(); ++i) {
    const std::string& name = run.parameters[i].name;
    start[name == "tok" ? "tok.weight" : name] = initial(run.parameters[i], static_cast<int>(i));
  }
  return start;
}

template <class T, class... A>
void follow(const Run& run, size_t dp, size_t tp, DType dtype, size_t steps, A... args) {
  CAPTURE(run.str(), dp, tp, name(dtype));
  auto cluster = Cluster::in_process(static_cast<int>(dp * tp) + 1, hosting<T>());
  std::vector<Place> places;
  for (size_t i = 1; i <= dp * tp; ++i) places.emplace_back(i);
  const auto model = parallel::spawn<T>(cluster->here(), Mesh(*cluster, {{"dp", dp}, {"tp", tp}}, places),
                                        dtype == float64, args...);
  all(model.template call<&T::load>(start_of(run))).get();
  optim::DistributedOptimizer optimizer({model.actors().begin(), model.actors().end()}, run.optimizer,
                                        run.options);
  std::vector<double> losses;
  for (size_t step = 0; step < std::min(steps, run.losses.size()); ++step) {
    const auto [x, y] = batch(run, static_cast<int>(step));
    const auto rows = tp::even_sizes(x.size(0) + 1, dp);  // uneven ones
    std::vector<Tensor> xs, ys;
    std::vector<double> weights;
    int64_t from = 0;
    for (size_t d = 0; d < dp; ++d) {
      const int64_t to = d + 1 == dp ? x.size(0) : from + rows[d];
      xs.push_back(x.slice(0, from, to)), ys.push_back(y.slice(0, from, to));
      weights.push_back(static_cast<double>(to - from));
      from = to;
    }
    autograd::Context context(*cluster);
    const auto given =
        all(model.template call<&T::loss>(parallel::along("dp", xs), parallel::along("dp", ys))).get();
    Tensors of_replicas;
    for (const auto& ranks : model.lists("tp", given)) of_replicas.push_back(parallel::same_on_all(ranks));
    const Tensor loss = parallel::weighted_mean(of_replicas, weights);
    losses.push_back(loss.item());
    context.backward(loss);
    if (dp > 1) all(model.template call<&T::reduce>()).get();
    optimizer.step(context);
  }
  const auto [distance, step] = farthest(run, losses, dtype);
  INFO("largest difference at step " << step);
  CHECK(distance <= tolerance(run, dtype));
  nothing_left(*cluster);
}

// Stages of ranks, and replicas of them; the uneven last replica has fewer rows.
template <class Piece>
void follow_stages(const Run& run, std::vector<MeshDim> dims, const parallel::PipelineOptions& options,
                   DType dtype, size_t steps) {
  size_t workers = 1;
  for (const MeshDim& d : dims) workers *= d.size;
  CAPTURE(run.str(), workers, options.schedule, name(dtype));
  auto cluster = Cluster::in_process(static_cast<int>(workers) + 1, hosting<Piece>());
  std::vector<Place> places;
  for (size_t i = 1; i <= workers; ++i) places.emplace_back(i);
  const auto model = parallel::spawn<Piece>(cluster->here(), Mesh(*cluster, dims, places), dtype == float64,
                                            run.parameters[0].shape[0]);
  all(model.template call<&Piece::load>(start_of(run))).get();
  parallel::Pipelines train(cluster->here(), model,
                            parallel::stage<&Piece::forward>().template with_loss<&Piece::loss>(), options);
  optim::DistributedOptimizer optimizer({model.actors().begin(), model.actors().end()}, run.optimizer,
                                        run.options);
  std::vector<double> losses;
  for (size_t step = 0; step < std::min(steps, run.losses.size()); ++step) {
    const auto [x, y] = batch(run, static_cast<int>(step));
    autograd::Context context(*cluster);
    losses.push_back(train.step(Value(x), Value(y)).loss);
    optimizer.step(context);
  }
  const auto [distance, step] = farthest(run, losses, dtype);
  INFO("largest difference at step " << step);
  CHECK(distance <= tolerance(run, dtype));
  nothing_left(*cluster);
}

int64_t words_of(const Run& run) { return run.parameters[0].shape[0]; }

}  // namespace

TEST_CASE("the mlp, cut over 1 to 4 ranks, follows PyTorch's losses", "[trajectory][oracle]") {
  for (const Run& run : mlp_runs("generated"))
    for (const size_t tp : {1, 2, 3, 4}) {
      follow<Mlp>(run, 1, tp, float32, 60);
      follow<Mlp>(run, 1, tp, float64, 20);
    }
}

TEST_CASE("the mlp, replicated and cut, follows PyTorch's losses", "[trajectory][oracle]") {
  for (const Run& run : mlp_runs("generated")) {
    follow<Mlp>(run, 2, 2, float32, 40);
    follow<Mlp>(run, 3, 2, float64, 20);
  }
}

TEST_CASE("the transformer, cut over 1 to 4 ranks, follows PyTorch's losses", "[trajectory][oracle]") {
  for (const Run& run : transformer_runs("generated"))
    for (const size_t tp : {1, 2, 3, 4}) follow<Gpt>(run, 1, tp, float32, 40, words_of(run));
}

TEST_CASE("the transformer, with pieces of sequences between its products, follows PyTorch's losses",
          "[trajectory][oracle]") {
  for (const Run& run : transformer_runs("generated")) {
    for (const size_t tp : {2, 3, 4}) follow<PiecesGpt>(run, 1, tp, float32, 40, words_of(run));
    follow<PiecesGpt>(run, 2, 2, float64, 10, words_of(run));
  }
}

TEST_CASE("the transformer, with sequences cut over 1 to 4 ranks, follows PyTorch's losses",
          "[trajectory][oracle]") {
  for (const Run& run : transformer_runs("generated"))
    for (const bool ring : {false, true}) {
      for (const size_t cp : {1, 2, 3, 4}) follow<ContextGpt>(run, 1, cp, float32, 40, words_of(run), ring);
      follow<ContextGpt>(run, 2, 3, float64, 10, words_of(run), ring);
    }
}

TEST_CASE("the transformer in float64, cut over 3 ranks, follows PyTorch's losses", "[trajectory][oracle]") {
  for (const Run& run : transformer_runs("generated")) follow<Gpt>(run, 1, 3, float64, 20, words_of(run));
}

TEST_CASE("the transformer, replicated and cut, follows PyTorch's losses", "[trajectory][oracle]") {
  for (const Run& run : transformer_runs("generated")) follow<Gpt>(run, 2, 2, float32, 20, words_of(run));
}

TEST_CASE("the transformer, in stages that are cut over ranks, follows PyTorch's losses",
          "[trajectory][oracle]") {
  for (const Run& run : transformer_runs("generated"))
    for (const char* schedule : {"1f1b", "zb-h1", "credits(2)"})
      follow_stages<Piece>(run, {{"pp", 2}, {"tp", 2}}, {.schedule = schedule, .micro_batches = 3}, float32,
                           20);
}

TEST_CASE("replicas of stages that are cut over ranks follow PyTorch's losses", "[trajectory][oracle]") {
  for (const Run& run : transformer_runs("generated")) {
    for (const auto shard : {parallel::Shard::none, parallel::Shard::state, parallel::Shard::gradients})
      follow_stages<Piece>(run, {{"dp", 2}, {"pp", 2}, {"tp", 2}}, {.micro_batches = 2, .shard = shard},
                           float32, 20);
    follow_stages<Piece>(run, {{"tp", 2}, {"pp", 2}, {"dp", 3}},
                         {.schedule = "credits(2)", .micro_batches = 2}, float64, 10);
  }
}

TEST_CASE("stages whose sequences are cut over ranks follow PyTorch's losses", "[trajectory][oracle]") {
  for (const Run& run : transformer_runs("generated")) {
    for (const char* schedule : {"1f1b", "zb-h1", "credits(2)"})
      follow_stages<ContextPiece>(run, {{"pp", 2}, {"tp", 2}}, {.schedule = schedule, .micro_batches = 3},
                                  float32, 10);
    follow_stages<ContextPiece>(run, {{"dp", 2}, {"pp", 2}, {"tp", 2}},
                                {.micro_batches = 2, .shard = parallel::Shard::state}, float64, 10);
  }
}
