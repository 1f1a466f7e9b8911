// A mixture of experts whose rows, sequences, heads and experts are cut follows PyTorch's losses step by
// step.
#include <catch2/catch.hpp>

#include <deque>

#include "tests/support/nothing_left.h"
#include "tests/support/trajectory.h"
#include "troupe/context_parallel.h"
#include "troupe/experts.h"
#include "troupe/tensor_parallel.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

constexpr int64_t kWords = 65, kTime = 64, kOfMixture = 32;  // the width

// The ranks along "ep" have rows of their own, those along "cp" positions; experts lie on all of them.
struct TrialRanks {
  explicit TrialRanks(const Mesh& mesh)
      : ep(mesh["ep"]), all(mesh.across({"ep", "cp"})), cp(mesh["cp"], mesh["tp"], all) {}
  Group ep, all;
  cp::Ranks cp;
};

struct TrialBlock : nn::Module {
  TrialBlock(const TrialRanks& ranks, bool ring, double capacity)
      : norm1(ranks.all, kOfMixture, nn::LayerNormOptions{.dtype = float64}),
        norm2(ranks.all, kOfMixture, nn::LayerNormOptions{.dtype = float64}),
        attention(ranks.cp, kOfMixture, 4, {.causal = true, .dtype = float64},
                  ring ? cp::Way::ring : cp::Way::heads),
        experts(ranks.all, kOfMixture, 48, 5, {.top_k = 2, .capacity = capacity, .dtype = float64}) {}
  Task<parallel::Mixture> operator()(Tensor x, cp::Sequence sequence) {
    Task<Tensor> attending = attention(norm1(x), sequence);
    const Tensor seen = co_await std::move(attending);
    x = x + seen;
    Task<parallel::Mixture> mixing = experts(norm2(x));
    parallel::Mixture mixed = co_await std::move(mixing);
    mixed.y = x + mixed.y;
    co_return mixed;
  }
  void members(nn::Members& m) override {
    m("norm1", norm1), m("self_attn", attention), m("norm2", norm2), m("experts", experts);
  }
  tp::Copied<nn::LayerNorm> norm1, norm2;
  cp::Attention attention;
  parallel::Experts experts;
};

struct TrialNet : nn::Module {
  TrialNet(const Mesh& mesh, bool ring, double capacity)
      : ranks(mesh),
        tok(mesh["tp"], kWords, kOfMixture, {.dtype = float64}),
        norm(kOfMixture, {.dtype = float64}),
        head(mesh["tp"], kOfMixture, kWords, {.dtype = float64}),
        sequence(kTime, mesh.size("cp"), capacity ? cp::Cut::in_order : cp::Cut::zigzag) {
    pos = zeros({kTime, kOfMixture}, float64).requires_grad_();
    for (int i = 0; i < 2; ++i) blocks.emplace_back(ranks, ring, capacity);
  }
  // The loss has the gradient of the balance, and does not show it.
  Task<Tensor> loss(Tensor ids, Tensor next) {
    const tp::Part part = tok(ids);
    Tensor x = co_await part;
    x = cp::cut(tp::cut(x + pos, ranks.ep, 0), ranks.cp.sequence, 1, sequence);
    Tensor balance = zeros({}, float64);
    dropped = 0;
    for (auto& block : blocks) {
      Task<parallel::Mixture> running = block(x, sequence);
      const parallel::Mixture mixed = co_await std::move(running);
      x = mixed.y, balance = balance + mixed.balance, dropped += mixed.dropped;
    }
    const auto joining = cp::join(x, ranks.cp.sequence, 1, sequence);
    x = co_await joining;
    const auto rows = tp::join(x, ranks.ep, 0);
    x = co_await rows;
    const auto adding = tp::sum(balance * (0.01 / double(std::max<size_t>(ranks.all.size(), 1))), ranks.all);
    const Tensor added = co_await adding;
    Task<Tensor> crossing = head.cross_entropy(head(norm(x)), next);
    const Tensor loss = co_await std::move(crossing);
    co_return loss + (added - added.detach());
  }
  void members(nn::Members& m) override {
    m("tok", tok), m("pos", pos);
    for (size_t i = 0; i < blocks.size(); ++i) m("block" + std::to_string(i), blocks[i]);
    m("norm", norm), m("head", head);
  }
  TrialRanks ranks;
  tp::VocabularyEmbedding tok;
  Tensor pos;
  std::deque<TrialBlock> blocks;
  nn::LayerNorm norm;
  tp::Head head;
  cp::Sequence sequence;
  int64_t dropped = 0;
};

struct TrialRank : nn::ModuleActor<TrialNet> {
  TrialRank(Mesh mesh, bool ring, double capacity) : ModuleActor(mesh, ring, capacity) {}
  Task<Tensor> loss(Tensor ids, Tensor next) { return net.loss(std::move(ids), std::move(next)); }
  void load(std::map<std::string, Tensor> whole) { tp::load_whole_state(net, whole); }
  int64_t dropped() { return net.dropped; }
  static constexpr auto remote = methods<&TrialRank::loss, &TrialRank::load, &TrialRank::dropped>;
};

void follow_experts(const Run& run, const std::string& text, bool ring, size_t steps) {
  CAPTURE(run.str(), run.capacity, text, ring);
  const auto dims = mesh_dims(text, {"ep", "cp", "tp"});
  size_t workers = 1;
  for (const MeshDim& d : dims) workers *= d.size;
  auto cluster = Cluster::in_process(static_cast<int>(workers), hosting<TrialRank>());
  const auto model = parallel::spawn<TrialRank>(cluster->here(), Mesh(*cluster, dims), ring, run.capacity);
  std::map<std::string, Tensor> start;
  for (size_t i = 0; i < run.parameters.size(); ++i)
    start[run.parameters[i].name] = initial(run.parameters[i], static_cast<int>(i)).to(float64);
  all(model.call<&TrialRank::load>(start)).get();
  optim::DistributedOptimizer optimizer({model.actors().begin(), model.actors().end()}, run.optimizer,
                                        run.options);
  std::vector<double> losses;
  for (size_t step = 0; step < steps; ++step) {
    const auto [x, y] = batch(run, static_cast<int>(step));
    autograd::Context context(*cluster);
    const Tensor loss = parallel::same_on_all(all(model.call<&TrialRank::loss>(x, y)).get());
    losses.push_back(loss.item());
    context.backward(loss);
    optimizer.step(context);
  }
  const auto dropped = all(model.call<&TrialRank::dropped>()).get();
  CHECK((dropped[0] > 0) == (run.capacity > 0));
  const auto [distance, step] = farthest(run, losses, float64);
  INFO("largest difference at step " << step);
  CHECK(distance <= tolerance(run, float64));
  nothing_left(*cluster);
}

}  // namespace

TEST_CASE("a mixture of experts, cut along each axis over 1 to 4 ranks, follows PyTorch's losses",
          "[trajectory][oracle]") {
  for (const Run& run : mixture_runs()) {
    for (const char* text : {"ep=1", "ep=2", "ep=3", "ep=4", "tp=2", "tp=3", "tp=4"})
      follow_experts(run, text, false, text == std::string("ep=3") ? run.losses64.size() : 4);
    if (run.capacity)
      continue;  // it counts tokens in the order of the ranks: that of rows alone is the batch's
    for (const char* text : {"cp=2", "cp=3", "cp=4"})
      for (const bool ring : {false, true}) follow_experts(run, text, ring, 4);
  }
}

TEST_CASE("a mixture of experts, cut along several axes on eight workers, follows PyTorch's losses",
          "[trajectory][oracle]") {
  for (const Run& run : mixture_runs()) {
    for (const char* text : {"ep=8", "ep=4,tp=2", "ep=2,tp=4"}) follow_experts(run, text, false, 4);
    if (run.capacity) continue;
    for (const char* text : {"cp=8", "ep=2,cp=4", "ep=4,cp=2", "cp=4,tp=2", "ep=2,cp=2,tp=2"})
      for (const bool ring : {false, true}) follow_experts(run, text, ring, 4);
  }
}
