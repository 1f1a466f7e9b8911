// Training steps of transformer layers over a sequence that two ranks cut, by heads and by a ring, and of a
// mixture whose experts they divide, beside the same in one process: `troupe run -n 2 bench_axes`.
#include "bench/measure.h"
#include "bench/wide_mlp.h"
#include "troupe/context_parallel.h"
#include "troupe/experts.h"
#include "troupe/troupe.h"
using namespace troupe;

namespace {

// The shapes, first values and batch are those of the peer (bench/torch_axes.py).
constexpr int64_t kWidth = 256, kHeads = 4, kBlocks = 2, kExperts = 8, kInner = 1024;

const nn::TransformerEncoderLayerOptions kOptions{
    .dim_feedforward = 4 * kWidth, .dropout = 0, .activation = "gelu", .norm_first = true, .causal = true};

// Gives the matrices of a layer, and their biases, their first values.
void start_block(nn::Module& block, uint32_t number) {
  const NoGradGuard off;
  const auto all = block.named_parameters();
  uint32_t sequence = 16 * number;
  for (const char* name :
       {"self_attn.in_proj_weight", "self_attn.in_proj_bias", "self_attn.out_proj.weight",
        "self_attn.out_proj.bias", "linear1.weight", "linear1.bias", "linear2.weight", "linear2.bias"})
    for (const auto& [own, parameter] : all)
      if (own == name) {
        const auto in = static_cast<double>(own == "linear2.weight" ? kInner : kWidth);
        const std::vector<int64_t> sizes(parameter.shape().begin(), parameter.shape().end());
        parameter.copy_(bench::uniform(sequence++, sizes, 1 / std::sqrt(in)));
      }
}

// Rows of one sequence, and what they are to become.
struct Sequences {
  explicit Sequences(int64_t t)
      : time(t), x(bench::uniform(200, {1, t, kWidth}, 1.5)), y(bench::uniform(201, {1, t, kWidth}, 1.5)) {}
  // Of the ranks: zigzag, and in order.
  std::vector<Tensor> pieces(const Tensor& whole) const {
    const cp::Sequence sequence(time, 2);
    return {sequence.piece(whole, 1, 0), sequence.piece(whole, 1, 1)};
  }
  std::vector<Tensor> halves(const Tensor& whole) const {
    return {whole.slice(1, 0, time / 2), whole.slice(1, time / 2, time)};
  }
  int64_t time;
  Tensor x, y;
};

template <class Block>
struct Blocks : nn::Module {
  template <class... A>
  explicit Blocks(const A&... args) {
    for (uint32_t b = 0; b < kBlocks; ++b) start_block(blocks.emplace_back(args...), b);
  }
  void members(nn::Members& m) override {
    for (size_t b = 0; b < blocks.size(); ++b) m(std::to_string(b), blocks[b]);
  }
  std::deque<Block> blocks;
};

using Whole = Blocks<nn::TransformerEncoderLayer>;
using Cut = Blocks<cp::TransformerEncoderLayer>;

struct ContextRank : nn::ModuleActor<Cut> {
  ContextRank(Mesh mesh, bool ring)
      : ModuleActor(cp::Ranks(mesh["cp"]), kWidth, kHeads, kOptions, ring ? cp::Way::ring : cp::Way::heads) {}
  Task<Tensor> loss(Tensor x, Tensor y) {  // of its positions
    const cp::Sequence sequence(2 * x.size(1), 2);
    for (auto& block : net.blocks) {
      Task<Tensor> running = block(std::move(x), sequence);
      x = co_await std::move(running);
    }
    co_return mse_loss(x, y);
  }
  static constexpr auto remote = methods<&ContextRank::loss>;
};

struct Mixing : nn::Module {
  explicit Mixing(const Group& ep) : norm(ep, kWidth), experts(ep, kWidth, kInner, kExperts, {.top_k = 2}) {
    const NoGradGuard off;
    const int64_t rank = ep.size() > 1 ? static_cast<int64_t>(ep.rank()) : 0;
    const auto part = [&](Tensor& own, uint32_t sequence, std::vector<int64_t> sizes, double in) {
      const int64_t some = own.size(0);
      own.copy_(bench::uniform(sequence, sizes, 1 / std::sqrt(in)).slice(0, rank * some, (rank + 1) * some));
    };
    experts.router.copy_(bench::uniform(100, {kExperts, kWidth}, 1.0));
    part(experts.w1, 101, {kExperts, kInner, kWidth}, kWidth),
        part(experts.b1, 102, {kExperts, kInner}, kWidth);
    part(experts.w2, 103, {kExperts, kWidth, kInner}, kInner),
        part(experts.b2, 104, {kExperts, kWidth}, kInner);
  }
  Task<Tensor> loss(Tensor x, Tensor y) {
    Task<parallel::Mixture> mixing = experts(norm(x));
    const parallel::Mixture mixed = co_await std::move(mixing);
    co_return mse_loss(x + mixed.y, y) + mixed.balance * 0.01;
  }
  void members(nn::Members& m) override { m("norm", norm), m("experts", experts); }
  tp::Copied<nn::LayerNorm> norm;
  parallel::Experts experts;
};

struct ExpertsRank : nn::ModuleActor<Mixing> {
  explicit ExpertsRank(Mesh mesh) : ModuleActor(mesh["ep"]) {}
  Task<Tensor> loss(Tensor x, Tensor y) {
    Task<Tensor> running = net.loss(std::move(x), std::move(y));
    co_return co_await std::move(running);
  }
  static constexpr auto remote = methods<&ExpertsRank::loss>;
};

void time_steps(const bench::Bench& bench, Cluster& cluster, const Sequences& batch) {
  const auto report = [&](const char* name, int ranks, const std::function<Tensor()>& step) {
    const bench::TimedSteps steps(bench, step, 10);
    bench.emit(name, steps.us, "us", {{"ranks", ranks}, {"time", static_cast<double>(batch.time)}},
               steps.losses);
  };
  const auto alone = [&](const char* name, nn::Module& net, const std::function<Tensor()>& loss_of) {
    optim::Adam adam(net.parameters(), {});
    report(name, 1, [&] {
      adam.zero_grad();
      const Tensor loss = loss_of();
      loss.backward();
      adam.step();
      return loss;
    });
  };
  const auto over_ranks = [&](const char* name, const auto& model, auto method, const std::vector<Tensor>& x,
                              const std::vector<Tensor>& y, const char* dim) {
    optim::Distributed<optim::Adam> adam(model, {});
    report(name, static_cast<int>(x.size()), [&] {
      autograd::Context context(cluster);
      const auto losses =
          all(model.template call<decltype(method)::value>(parallel::along(dim, x), parallel::along(dim, y)))
              .get();
      const Tensor loss = parallel::weighted_mean(losses);
      context.backward(loss);
      adam.step(context);
      return loss;
    });
  };
  {
    Whole net(kWidth, kHeads, kOptions);
    alone("context_step_us", net, [&] {
      Tensor x = batch.x;
      for (auto& block : net.blocks) x = block(x);
      return mse_loss(x, batch.y);
    });
  }
  for (const bool ring : {false, true}) {
    const auto model = parallel::spawn<ContextRank>(cluster.here(), Mesh(cluster, {{"cp", 2}}), ring);
    over_ranks(ring ? "context_ring_step_us" : "context_heads_step_us", model,
               std::integral_constant<decltype(&ContextRank::loss), &ContextRank::loss>(),
               batch.pieces(batch.x), batch.pieces(batch.y), "cp");
  }
  const std::integral_constant<decltype(&ExpertsRank::loss), &ExpertsRank::loss> loss;
  {
    const Mesh mesh(cluster, {{"ep", 1}}, {cluster.workers()[0]});
    over_ranks("experts_one_step_us", parallel::spawn<ExpertsRank>(cluster.here(), mesh), loss, {batch.x},
               {batch.y}, "ep");
  }
  over_ranks("experts_step_us", parallel::spawn<ExpertsRank>(cluster.here(), Mesh(cluster, {{"ep", 2}})),
             loss, batch.halves(batch.x), batch.halves(batch.y), "ep");
}

}  // namespace

int main(int argc, char** argv) {
  bench::Bench bench("bench_axes",
                     "Times steps over cut sequences and divided experts; start it with troupe run -n 2.",
                     argc, argv);
  if (bench.exit_code) return *bench.exit_code;
  return launch(hosting<ContextRank, ExpertsRank>(), [&](Cluster& cluster) {
    if (cluster.workers().size() != 2)
      throw_invalid("[bench] bench_axes needs 2 workers, got " + std::to_string(cluster.workers().size()));
    if (!LaunchEnvironment::read()) bench.set_placement("in-process");
    for (const int64_t time : {512, 2048})
      if (time == 512 || !bench.quick()) time_steps(bench, cluster, Sequences(time));
  });
}
