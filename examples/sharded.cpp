// A transformer learns a text file character by character, cut in the ways that a mesh names: into stages
// (pp), layers (tp) and sequences (cp) over ranks, replicas (dp); with --experts also experts over ranks
// (ep): `troupe run -n 8 sharded FILE --mesh dp=2,pp=2,tp=2`.
#include <troupe/context_parallel.h>
#include <troupe/data.h>
#include <troupe/experts.h>
#include <troupe/layout.h>
#include <troupe/pipeline.h>
#include <troupe/plan.h>
#include <troupe/tensor_parallel.h>
#include <troupe/tools/program.h>
using namespace troupe;

constexpr int64_t kContext = 64, kHeads = 4, kBlocks = 4;

struct Sizes {
  int64_t words = 0, width = 0, experts = 0;
  double balance = 0;
  std::string way = {};
  std::vector<size_t> cuts = {};  // blocks before which stages begin
};

nn::TransformerEncoderLayerOptions gpt(int64_t width) {
  return {
      .dim_feedforward = 4 * width, .dropout = 0, .activation = "gelu", .norm_first = true, .causal = true};
}

// Who has what of a block over sequences that are cut; along "ep" ranks have rows of their own.
cp::Ranks ranks_of(const Mesh& mesh) { return {mesh["cp"], mesh["tp"], mesh.across({"ep", "cp"})}; }
cp::Way way_of(const Sizes& sizes) { return sizes.way == "ring" ? cp::Way::ring : cp::Way::heads; }

// A block with experts in the place of its two linear layers.
struct MixtureBlock : nn::Module {
  MixtureBlock(const Mesh& mesh, const Sizes& s)
      : norm1(ranks_of(mesh).copies, s.width),
        norm2(ranks_of(mesh).copies, s.width),
        attention(ranks_of(mesh), s.width, kHeads, {.causal = true}, way_of(s)),
        experts(ranks_of(mesh).copies, s.width, 4 * s.width, s.experts,
                {.top_k = std::min<int64_t>(2, s.experts)}) {}
  // x and, in one more column, what balances the experts.
  Task<Tensor> operator()(Tensor x, cp::Sequence sequence) {
    Tensor balance = x.slice(2, -1, x.size(2));
    x = x.slice(2, 0, -1);
    Task<Tensor> attending = attention(norm1(x), sequence);
    x = x + co_await std::move(attending);
    Task<parallel::Mixture> mixing = experts(norm2(x));
    const parallel::Mixture mixed = co_await std::move(mixing);
    co_return cat({x + mixed.y, balance + mixed.balance}, 2);
  }
  void members(nn::Members& m) override {
    m("norm1", norm1), m("self_attn", attention), m("norm2", norm2), m("experts", experts);
  }
  tp::Copied<nn::LayerNorm> norm1, norm2;
  cp::Attention attention;
  parallel::Experts experts;
};

struct Net : nn::Module {  // of one stage; what is Sharded is whole only while it runs, with --shard all
  Net(const Mesh& mesh, const Sizes& s)
      : cp(mesh["cp"]), ep(mesh["ep"]), sequence(kContext, cp.size()), balance(s.balance) {
    const parallel::StageLayers own(mesh, kBlocks, s.cuts);
    if (own.first()) tokens.emplace(mesh["tp"], s.words, s.width), positions.emplace(kContext, s.width);
    for (const size_t b : own)
      if (s.experts)
        mixtures.try_emplace(b, mesh, s);
      else if (cp.size() * ep.size() > 1)
        pieces.try_emplace(b, ranks_of(mesh), s.width, kHeads, gpt(s.width), way_of(s));
      else
        blocks.try_emplace(b, mesh["tp"], s.width, kHeads, gpt(s.width));
    if (own.last()) norm.emplace(s.width), head.emplace(mesh["tp"], s.width, s.words);
  }
  Task<Tensor> forward(Tensor x) {  // ids or activations -> activations or a part of the logits
    if (tokens) {
      x = co_await (*tokens)(x) + positions->weight.slice(0, 0, x.size(1));
      if (!mixtures.empty()) x = cat({x, zeros({x.size(0), x.size(1), 1})}, 2);
      x = cp::cut(tp::cut(x, ep, 0), cp, 1, sequence);
    }
    for (auto& [number, block] : blocks) x = co_await block(x);
    for (auto& [number, block] : pieces) x = co_await block(x, sequence);
    for (auto& [number, block] : mixtures) x = co_await block(x, sequence);
    if (!head) co_return x;
    x = co_await cp::join(x, cp, 1, sequence);
    x = co_await tp::join(x, ep, 0);
    if (mixtures.empty()) co_return co_await (*head)((*norm)(x));
    const Tensor added = x.slice(2, -1, x.size(2));
    co_return cat({co_await (*head)((*norm)(x.slice(2, 0, -1))), added}, 2);
  }
  Task<Tensor> loss(Tensor logits, Tensor next) {
    if (mixtures.empty()) co_return co_await head->module.cross_entropy(logits, next);
    const Tensor added = mean(logits.slice(2, -1, logits.size(2))) * balance;
    Task<Tensor> loss = head->module.cross_entropy(logits.slice(2, 0, -1), next);
    co_return co_await std::move(loss) + (added - added.detach());  // it has a gradient, and does not show
  }
  void members(nn::Members& m) override {
    if (tokens) m("tokens", *tokens), m("positions", *positions);
    for (auto& [number, block] : blocks) m("block" + std::to_string(number), block);
    for (auto& [number, block] : pieces) m("block" + std::to_string(number), block);
    for (auto& [number, block] : mixtures) m("block" + std::to_string(number), block);
    if (head) m("norm", *norm), m("head", *head);
  }
  Group cp, ep;
  cp::Sequence sequence;
  double balance;
  std::optional<parallel::Sharded<tp::VocabularyEmbedding>> tokens;
  std::optional<nn::Embedding> positions;
  std::map<size_t, parallel::Sharded<tp::TransformerEncoderLayer>> blocks;
  std::map<size_t, cp::TransformerEncoderLayer> pieces;  // over sequences that are cut
  std::map<size_t, MixtureBlock> mixtures;
  std::optional<nn::LayerNorm> norm;
  std::optional<parallel::Sharded<tp::Head>> head;
};

// The same model as layers, for --measure: what comes before the blocks, these, and what comes behind.
Value layers_of(const Sizes& s) {
  ValueList layers{nn::spec_of("embedding", {s.words, s.width})};
  for (int64_t b = 0; b < kBlocks; ++b)
    layers.push_back(nn::spec_of("transformer_encoder_layer", {},
                                 {{"width", s.width},
                                  {"heads", kHeads},
                                  {"dim_feedforward", 4 * s.width},
                                  {"dropout", 0.0},
                                  {"activation", std::string("gelu")},
                                  {"norm_first", true},
                                  {"causal", true}}));
  layers.push_back(
      ValueList{nn::spec_of("layer_norm", {s.width}), nn::spec_of("linear", {s.width, s.words})});
  return layers;
}

// Stages have as many blocks each, as parallel::StageLayers divides them; in layers_of() they are behind the
// first.
std::vector<size_t> even_cuts(size_t stages) {
  if (stages > kBlocks)
    throw_invalid("[sharded] there are more stages than blocks: give a layout with \"cuts\"");
  std::vector<size_t> cuts;
  for (size_t s = 1; s < stages; ++s)
    cuts.push_back(1 + s * (kBlocks / stages) + std::min<size_t>(s, kBlocks % stages));
  return cuts;
}

void measure(const Here& here, const Sizes& sizes, const Tensor& ids, const std::string& file) {
  parallel::ModelProfile profile = parallel::measure(here, layers_of(sizes), ids);
  for (parallel::LayerCost* l : {&profile.layers.front(), &profile.layers.back()})  // ranks divide words
    l->time_divided = l->parameters_divided = 1, l->heads = sizes.words;
  parallel::write_profile(profile, file);
  std::printf("%s: %zu layers on %zu workers\n", file.c_str(), profile.layers.size(), profile.workers.size());
}

int main(int argc, char** argv) {
  tools::Flags flags("sharded", "Trains a small transformer on a UTF-8 text file, on a mesh of workers.");
  auto& steps = flags.whole("--steps", 500, "training steps", {1, 1e7});
  auto& batch = flags.whole("--batch", 16, "sequences per step", {1, 1e5});
  auto& width = flags.whole("--width", 64, "of the model", {1, 65536});
  auto& dims = flags.text("--mesh", "", "such as dp=2,cp=2,tp=2; what it leaves of the workers is in tp");
  auto& shard = flags.text("--shard", "none", "what replicas divide", {"none", "state", "gradients", "all"});
  auto& way = flags.text("--context", "heads", "how ranks along cp attend", {"heads", "ring"});
  auto& experts = flags.whole("--experts", 0, "in each block, divided over ep and cp; 0: none", {0, 1e4});
  auto& balance = flags.number("--balance", 0.01, "how much even loads of experts count", {0, 1e3});
  auto& plans = flags.layouts();
  auto& report = flags.given("--report", "print what lies where in how many bytes, and what a step sent");
  auto& seed = flags.seed("of weights and windows");
  auto& picture = flags.picture("--chart", "sharded.svg", "picture of the loss (SVG)");
  auto& file = flags.file("FILE", "the text");
  auto& saved = flags.checkpoints();
  if (auto code = flags.reaches("perplexity <= 11", "on 1 MB of English").parse(argc, argv)) return *code;

  const auto train = [&](Cluster& cluster) {
    flags.check_outputs();
    const auto [vocabulary, ids] = datasets::read_text(file);
    auto layout = plans.layout.empty() ? parallel::Layout() : parallel::read_layout(plans.layout);
    const Mesh mesh =
        plans.layout.empty()
            ? Mesh(cluster, mesh_dims(dims, {"dp", "pp", "ep", "cp", "tp"}, cluster.workers().size()))
            : layout.mesh(cluster.here(), {"ep", "cp"});
    if (mesh.size("ep") > 1 && !experts)
      throw_invalid("[sharded] --mesh has ep, which divides experts: give --experts, or use dp for replicas");
    manual_seed(seed);
    Generator random(seed);
    Sizes sizes{
        .words = vocabulary.size(), .width = width, .experts = experts, .balance = balance, .way = way};
    if (experts && !(plans.measure + plans.check).empty())
      throw_invalid("[sharded] --measure and --check are about models without experts: leave out --experts");
    if (!plans.check.empty() && layout.has("workers"))
      throw_invalid(
          "[sharded] --check is about all workers in their order: leave out \"workers\" of the layout");
    if (!plans.measure.empty())
      return measure(cluster.here(), sizes, datasets::random_windows(ids, kContext, batch, random).x,
                     plans.measure);
    const std::vector<size_t> cuts = layout.cuts(mesh.size("pp"));
    for (const size_t cut : cuts) sizes.cuts.push_back(std::min<size_t>(cut - 1, kBlocks));
    parallel::PipelineOptions options{.shard = parallel::shard_named(shard)};
    if (!plans.layout.empty()) options = layout.pipelines(mesh, options);
    layout.check_all_read();
    const auto model = parallel::spawn<parallel::ModuleStage<Net>>(cluster.here(), mesh, sizes);
    parallel::Pipelines pipelines(cluster.here(), model, options);
    optim::Distributed<optim::AdamW> optimizer(model, {.lr = 3e-3});
    optim::Scheduler rate(optimizer, optim::warm_up(std::max<int64_t>(1, steps / 20), optim::cosine(steps)));
    if (!plans.check.empty()) {
      const auto step = [&] {
        const auto [x, y] = datasets::random_windows(ids, kContext, batch, random);
        autograd::Context gradients(cluster);
        (void)pipelines.step(Value(x), Value(y));
        optimizer.step(gradients);
      };
      const Tensor x = datasets::random_windows(ids, kContext, batch, random).x;
      const auto checked = parallel::check_plan(
          cluster.here(), parallel::read_profile_of(layers_of(sizes), x, plans.check),
          parallel::planned(mesh.dims(), options, cuts.empty() ? even_cuts(mesh.size("pp")) : cuts, batch),
          layers_of(sizes), x, step);
      std::printf("%s", checked.str().c_str());
      return;
    }
    tools::Training training(picture, "Characters of " + file, steps, {.smooth = 16});
    Keep keep("random", random);
    Job job(cluster);
    for ([[maybe_unused]] const int64_t step : job.steps(steps)) {
      const auto [x, y] = datasets::random_windows(ids, kContext, batch, random);
      double loss = 0;
      job.attempt([&, x = x, y = y] {  // with --elastic: made again if a worker is lost in it
        autograd::Context gradients(cluster);
        loss = pipelines.step(Value(x), Value(y)).loss;
        optimizer.clip_grad_norm(gradients, 1.0), optimizer.step(gradients);
      });
      rate.step();
      training.step(loss, batch * kContext, {{"perplexity", std::exp(loss)}});
    }
    training.finish("perplexity %.2f in the last 20 steps", std::exp(training.loss(20)));
    if (report) std::printf("%s\n", pipelines.report().get().str().c_str());
  };
  return launch(train, {.checkpoints = saved});
}
