// Replicas that are trained on parts of each batch follow PyTorch's losses.
#include <catch2/catch.hpp>

#include <deque>

#include "tests/parallel/transformer.h"
#include "troupe/replicas.h"

using namespace troupe;
using namespace troupe::testing;
using namespace troupe::parallel;

namespace {

struct MlpNet : nn::Layer {
  nn::Linear fc0{784, 128}, fc1{128, 64}, fc2{64, 10};
  Tensor forward(const Tensor& x) override { return fc2(ops::relu(fc1(ops::relu(fc0(x))))); }
  void members(nn::Members& m) override { m("fc0", fc0), m("fc1", fc1), m("fc2", fc2); }
};
struct Mlp : nn::ModuleActor<MlpNet> {
  Tensor loss(Tensor x, Tensor y) { return cross_entropy(net(x), y); }
  static constexpr auto remote = methods<&Mlp::loss>;
};
struct Gpt : nn::ModuleActor<PieceNet> {
  explicit Gpt(int64_t vocabulary) : ModuleActor(int64_t{0}, kBlocks, vocabulary) {}
  Tensor loss(Tensor x, Tensor y) {
    const Tensor logits = net(x);
    return cross_entropy(reshape(logits, {-1, logits.size(2)}), reshape(y, {-1}));
  }
  static constexpr auto remote = methods<&Gpt::loss>;
};

// The same with parts.
struct MlpParts : nn::Module {
  Sharded<nn::Linear> fc0{784, 128}, fc1{128, 64}, fc2{64, 10};
  Task<Tensor> operator()(Tensor x) {
    x = co_await fc0(x);
    x = co_await fc1(ops::relu(x));
    co_return co_await fc2(ops::relu(x));
  }
  void members(nn::Members& m) override { m("fc0", fc0), m("fc1", fc1), m("fc2", fc2); }
};
struct MlpOfParts : nn::ModuleActor<MlpParts> {
  Task<Tensor> loss(Tensor x, Tensor y) {
    const Tensor out = co_await net(x);
    co_return cross_entropy(out, y);
  }
  static constexpr auto remote = methods<&MlpOfParts::loss>;
};
struct Embedding : nn::Layer {
  explicit Embedding(int64_t vocabulary)
      : tok(zeros({vocabulary, 64}).requires_grad_()), pos(zeros({64, 64}).requires_grad_()) {}
  Tensor forward(const Tensor& ids) override { return ops::add(ops::embedding(ids, tok), pos); }
  void members(nn::Members& m) override { m("tok", tok), m("pos", pos); }
  Tensor tok, pos;
};
struct Top : nn::Layer {
  explicit Top(int64_t vocabulary) : norm(64), head(64, vocabulary) {}
  Tensor forward(const Tensor& x) override { return head(norm(x)); }
  void members(nn::Members& m) override { m("norm", norm), m("head", head); }
  nn::LayerNorm norm;
  nn::Linear head;
};
struct GptParts : nn::Module {
  explicit GptParts(int64_t vocabulary) : embedding(vocabulary), top(vocabulary) {
    const nn::TransformerEncoderLayerOptions gpt{
        .dim_feedforward = 256, .dropout = 0, .activation = "gelu", .norm_first = true, .causal = true};
    for (int64_t i = 0; i < kBlocks; ++i) blocks.emplace_back(64, 4, gpt);
  }
  Task<Tensor> operator()(Tensor ids) {
    Tensor x = co_await embedding(ids);
    for (auto& block : blocks) x = co_await block(x);
    co_return co_await top(x);
  }
  void members(nn::Members& m) override {
    m("embedding", embedding);
    for (size_t i = 0; i < blocks.size(); ++i) m("block" + std::to_string(i), blocks[i]);
    m("top", top);
  }
  Sharded<Embedding> embedding;
  std::deque<Sharded<nn::TransformerEncoderLayer>> blocks;
  Sharded<Top> top;
};
struct GptOfParts : nn::ModuleActor<GptParts> {
  explicit GptOfParts(int64_t vocabulary) : ModuleActor(vocabulary) {}
  Task<Tensor> loss(Tensor x, Tensor y) {
    const Tensor logits = co_await net(x);
    co_return cross_entropy(reshape(logits, {-1, logits.size(2)}), reshape(y, {-1}));
  }
  static constexpr auto remote = methods<&GptOfParts::loss>;
};
// Of a parameter of a run.
std::string name_in_parts(const std::string& name) {
  if (name == "tok" || name == "pos") return "embedding." + name;
  if (name.starts_with("norm.") || name.starts_with("head.")) return "top." + name;
  return name;
}

// Rows as even as they can be, in one pass.
struct Evenly {
  template <class Net>
  double operator()(autograd::Context& context, DataParallel<Net>& net, const Tensor& x, const Tensor& y,
                    size_t) const {
    const Tensor loss = net.template mean<&Net::loss>(split(x), split(y)).get();
    context.backward(loss);
    return loss.item();
  }
};
// The first replica has more rows than the last, and every other step has two passes, summed by the second.
struct Unevenly {
  static Split cut(const Tensor& x, size_t n) {
    Tensors parts;
    const int64_t rows = x.size(0);
    for (size_t r = 0; r < n; ++r) {
      const auto at = [&](size_t k) { return rows * int64_t(k) / int64_t(n) + (k > 0 && k < n ? 1 : 0); };
      parts.push_back(x.slice(0, at(r), at(r + 1)));
    }
    return split(parts);
  }
  template <class Net>
  double operator()(autograd::Context& context, DataParallel<Net>& net, const Tensor& x, const Tensor& y,
                    size_t step) const {
    const int64_t rows = x.size(0), middle = step % 2 ? rows : rows / 4;
    double mean = 0;
    const auto pass = [&](int64_t from, int64_t to) {
      if (from == to) return;
      const double weight = double(to - from) / double(rows);
      const Tensor loss = net.template mean<&Net::loss>(cut(x.slice(0, from, to), net.size()),
                                                        cut(y.slice(0, from, to), net.size()))
                              .get() *
                          weight;
      mean += loss.item();
      context.backward(loss);
    };
    {
      const Accumulation later = net.accumulate();
      if (middle < rows) pass(0, middle);
    }
    pass(middle < rows ? middle : 0, rows);
    return mean;
  }
};

std::map<std::string, Tensor> start_of(const Run& run) {
  std::map<std::string, Tensor> start;
  for (size_t i = 0; i < run.parameters.size(); ++i)
    start[run.parameters[i].name] = initial(run.parameters[i], static_cast<int>(i));
  return start;
}

template <class Net, class Pass>
void train(Cluster& cluster, const Run& run, DataParallel<Net>& net, const Pass& pass) {
  optim::DistributedOptimizer optimizer(net, run.optimizer, run.options);
  std::vector<double> losses;
  for (size_t step = 0; step < run.losses.size(); ++step) {
    const auto [x, y] = batch(run, static_cast<int>(step));
    autograd::Context context(cluster);
    losses.push_back(pass(context, net, x, y, step));
    optimizer.step(context);
  }
  INFO(run.str() << " on " << net.size() << " replicas");
  CHECK(farthest(run, losses).first <= tolerance(run, float32));
}

template <class Net, class Pass = Evenly>
void follow(Cluster& cluster, const Run& run, DataParallel<Net>& net, const Pass& pass = {}) {
  net.ready().get();
  for (const auto& r : net.replicas()) nn::load_remote_state_dict(r, start_of(run)).get();
  train(cluster, run, net, pass);
}

// Replicas of parts begin with the values of the first, which are put there before.
template <class Net, class... A>
void follow_in_parts(Cluster& cluster, const Run& run, size_t n, A... args) {
  std::map<std::string, Tensor> start;
  for (const auto& [name, value] : start_of(run)) start[name_in_parts(name)] = value;
  std::vector<RRef<Net>> actors;
  for (size_t r = 0; r < n; ++r) actors.push_back(cluster.spawn<Net>(r, args...));
  nn::load_remote_state_dict(actors[0], start).get();
  DataParallel<Net> net(actors, DataParallelOptions{.shard = Shard::all});
  train(cluster, run, net, Unevenly());
}

void follow_all(const std::vector<Run>& mlps, const std::vector<Run>& transformers) {
  for (const size_t n : {1, 2, 4}) {
    const auto cluster = Cluster::in_process(4, hosting<Mlp, Gpt>());
    const auto workers = cluster->workers();
    const Group group(*cluster, {workers.begin(), workers.begin() + static_cast<std::ptrdiff_t>(n)});
    for (const Run& run : mlps) {
      DataParallel<Mlp> net(cluster->here(), group);
      follow(*cluster, run, net);
    }
    for (const Run& run : transformers) {
      DataParallel<Gpt> net(cluster->here(), group, run.parameters[0].shape[0]);
      follow(*cluster, run, net);
    }
  }
}

}  // namespace

TEST_CASE("1, 2 and 4 replicas follow PyTorch's losses on generated data", "[trajectory][oracle]") {
  follow_all(mlp_runs("generated"), transformer_runs("generated"));
}

TEST_CASE("replicas with pieces follow PyTorch's losses, with uneven rows and passes that accumulate",
          "[trajectory][oracle]") {
  const Shard shard = GENERATE(Shard::state, Shard::gradients);
  const size_t n = GENERATE(1, 2, 3, 4);
  const auto cluster = Cluster::in_process(4, hosting<Mlp, Gpt>());
  const auto workers = cluster->workers();
  const Group group(*cluster, {workers.begin(), workers.begin() + static_cast<std::ptrdiff_t>(n)});
  const DataParallelOptions options{.buckets = {.first = 8 << 10, .others = 64 << 10}, .shard = shard};
  INFO(word(shard));
  for (const Run& run : mlp_runs("generated")) {
    DataParallel<Mlp> net(cluster->here(), group, options);
    follow(*cluster, run, net, Unevenly());
  }
  for (const Run& run : transformer_runs("generated")) {
    DataParallel<Gpt> net(cluster->here(), group, options, run.parameters[0].shape[0]);
    follow(*cluster, run, net, Unevenly());
  }
}

TEST_CASE("replicas of parts follow PyTorch's losses, with uneven rows and passes that accumulate",
          "[trajectory][oracle]") {
  const size_t n = GENERATE(1, 2, 3, 4);
  const auto cluster = Cluster::in_process(4, hosting<MlpOfParts, GptOfParts>());
  for (const Run& run : mlp_runs("generated")) follow_in_parts<MlpOfParts>(*cluster, run, n);
  for (const Run& run : transformer_runs("generated"))
    follow_in_parts<GptOfParts>(*cluster, run, n, run.parameters[0].shape[0]);
}

TEST_CASE("two pipelines of two stages that are replicas follow PyTorch's losses", "[trajectory][oracle]") {
  for (const Run& run : transformer_runs("generated")) {
    const auto cluster = Cluster::in_process(3, hosting<Piece>());
    std::vector<RRef<Piece>> actors;
    std::vector<std::vector<RRef<Piece>>> pieces;
    for (int r = 0; r < 2; ++r) pieces.push_back(spawn_pieces(*cluster, run, 2));
    const std::vector<Group> replicas{Group{pieces[0][0], pieces[1][0]}, Group{pieces[0][1], pieces[1][1]}};
    std::deque<Pipeline> pipelines;
    for (const auto& p : pieces) {
      const std::vector stages{stage<&Piece::forward>(p[0]),
                               stage<&Piece::forward>(p[1]).with_loss<&Piece::loss>()};
      pipelines.emplace_back(cluster->here(), stages,
                             PipelineOptions{.micro_batches = 2, .replicas = replicas});
      actors.insert(actors.end(), p.begin(), p.end());
    }
    optim::DistributedOptimizer optimizer({actors.begin(), actors.end()}, run.optimizer, run.options);
    std::vector<double> losses;
    for (size_t step = 0; step < run.losses.size(); ++step) {
      const auto [x, y] = batch(run, static_cast<int>(step));
      autograd::Context context(*cluster);
      std::vector<Future<StepResult>> steps;
      const std::vector<int64_t> cuts{0, 5, 8};
      for (size_t r = 0; r < 2; ++r)
        steps.push_back(pipelines[r].step_async(Value(x.slice(0, cuts[r], cuts[r + 1])),
                                                Value(y.slice(0, cuts[r], cuts[r + 1]))));
      const auto results = all(steps).get();
      losses.push_back((5 * results[0].loss + 3 * results[1].loss) / 8);
      optimizer.step(context);
    }
    INFO(run.str());
    CHECK(farthest(run, losses).first <= tolerance(run, float32));
  }
}

TEST_CASE("1, 2 and 4 replicas follow PyTorch's losses on mnist", "[trajectory][oracle]") {
  if (!has_data("mnist")) return;
  follow_all(mlp_runs("mnist"), {});
}

TEST_CASE("1, 2 and 4 replicas follow PyTorch's losses on shakespeare", "[trajectory][oracle]") {
  if (!has_data("shakespeare")) return;
  follow_all({}, transformer_runs("shakespeare"));
}
