// A transformer learns a text file character by character, cut in the ways that a mesh names: into stages
// (pp), layers over ranks (tp), replicas (dp): `troupe run -n 8 sharded FILE --mesh dp=2,pp=2,tp=2`.
#include <troupe/data.h>
#include <troupe/pipeline.h>
#include <troupe/tensor_parallel.h>
#include <troupe/tools/program.h>
using namespace troupe;

constexpr int64_t kContext = 64, kHeads = 4, kBlocks = 4;

struct Net : nn::Module {  // of one stage; what is Sharded is whole only while it runs, with --shard all
  Net(const Mesh& mesh, int64_t words, int64_t width) {
    const nn::TransformerEncoderLayerOptions gpt{
        .dim_feedforward = 4 * width, .dropout = 0, .activation = "gelu", .norm_first = true, .causal = true};
    const Group tp = mesh["tp"];
    const parallel::StageLayers own(mesh, kBlocks);
    if (own.first()) tokens.emplace(tp, words, width), positions.emplace(kContext, width);
    for (const size_t b : own) blocks.try_emplace(b, tp, width, kHeads, gpt);
    if (own.last()) norm.emplace(width), head.emplace(tp, width, words);
  }
  Task<Tensor> forward(Tensor x) {  // ids or activations -> activations or a part of the logits
    if (tokens) x = co_await (*tokens)(x) + positions->weight.slice(0, 0, x.size(1));
    for (auto& [number, block] : blocks) x = co_await block(x);
    if (head) x = co_await (*head)((*norm)(x));
    co_return x;
  }
  Task<Tensor> loss(Tensor logits, Tensor next) { return head->module.cross_entropy(logits, next); }
  void members(nn::Members& m) override {
    if (tokens) m("tokens", *tokens), m("positions", *positions);
    for (auto& [number, block] : blocks) m("block" + std::to_string(number), block);
    if (head) m("norm", *norm), m("head", *head);
  }
  std::optional<parallel::Sharded<tp::VocabularyEmbedding>> tokens;
  std::optional<nn::Embedding> positions;
  std::map<size_t, parallel::Sharded<tp::TransformerEncoderLayer>> blocks;
  std::optional<nn::LayerNorm> norm;
  std::optional<parallel::Sharded<tp::Head>> head;
};

int main(int argc, char** argv) {
  tools::Flags flags("sharded", "Trains a small transformer on a UTF-8 text file, on a mesh of workers.");
  auto& steps = flags.whole("--steps", 500, "training steps", {1, 1e7});
  auto& batch = flags.whole("--batch", 16, "sequences per step", {1, 1e5});
  auto& width = flags.whole("--width", 64, "of the model", {1, 65536});
  auto& dims = flags.text("--mesh", "", "such as dp=2,pp=2,tp=2; what it leaves of the workers is in tp");
  auto& shard = flags.text("--shard", "none", "what replicas divide", {"none", "state", "gradients", "all"});
  auto& report = flags.given("--report", "print what lies where in how many bytes, and what a step sent");
  auto& seed = flags.seed("of weights and windows");
  auto& picture = flags.picture("--chart", "sharded.svg", "picture of the loss (SVG)");
  auto& file = flags.file("FILE", "the text");
  auto& saved = flags.checkpoints();
  if (auto code = flags.reaches("perplexity <= 11", "on 1 MB of English").parse(argc, argv)) return *code;

  const auto train = [&](Cluster& cluster) {
    flags.check_outputs();
    const auto [vocabulary, ids] = datasets::read_text(file);
    const Mesh mesh(cluster, mesh_dims(dims, {"dp", "pp", "tp"}, cluster.workers().size()));
    manual_seed(seed);
    const auto model =
        parallel::spawn<parallel::ModuleStage<Net>>(cluster.here(), mesh, vocabulary.size(), width);
    parallel::Pipelines pipelines(cluster.here(), model, {.shard = parallel::shard_named(shard)});
    optim::Distributed<optim::AdamW> optimizer(model, {.lr = 3e-3});
    optim::Scheduler rate(optimizer, optim::warm_up(std::max<int64_t>(1, steps / 20), optim::cosine(steps)));
    Generator random(seed);
    tools::Training training(picture, "Characters of " + file, steps, {.smooth = 16});
    Keep keep("random", random);
    Job job(cluster);
    for ([[maybe_unused]] const int64_t step : job.steps(steps)) {
      const auto [x, y] = datasets::random_windows(ids, kContext, batch, random);
      autograd::Context gradients(cluster);
      const double loss = pipelines.step(Value(x), Value(y)).loss;
      optimizer.clip_grad_norm(gradients, 1.0), optimizer.step(gradients), rate.step();
      training.step(loss, batch * kContext, {{"perplexity", std::exp(loss)}});
    }
    training.finish("perplexity %.2f in the last 20 steps", std::exp(training.loss(20)));
    if (report) std::printf("%s\n", pipelines.report().get().str().c_str());
  };
  return launch(train, {.checkpoints = saved});
}
