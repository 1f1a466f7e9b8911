// A transformer learns a text file character by character, in stages over the workers: alone, or with
// `troupe run -n 3 char_pipeline FILE`. The first stage's embedding is the last one's matrix, too.
#include <troupe/data.h>
#include <troupe/layout.h>
#include <troupe/pipeline.h>
#include <troupe/tools/draw/timeline.h>
#include <troupe/tools/program.h>
#include <troupe/troupe.h>
using namespace troupe;

struct Sizes {
  int64_t vocabulary, width, blocks, context, heads = 4;
};

struct Blocks : nn::Layer {  // blocks [begin, end): ids or activations in, activations or logits out
  Blocks(const Sizes& sizes, int64_t begin, int64_t end)
      : first(begin == 0),
        last(end == sizes.blocks),
        tokens(sizes.vocabulary, sizes.width),
        positions(sizes.context, sizes.width),
        norm(sizes.width) {
    const nn::TransformerEncoderLayerOptions gpt{.dim_feedforward = 4 * sizes.width,
                                                 .dropout = 0,
                                                 .activation = "gelu",
                                                 .norm_first = true,
                                                 .causal = true};
    for (int64_t i = begin; i < end; ++i)
      blocks.add(nn::TransformerEncoderLayer(sizes.width, sizes.heads, gpt));
    Generator random(static_cast<uint64_t>(begin));
    reset(random);
    // Small, since the matrix also ends the model; both, or the positions drown the characters.
    for (const Tensor& table : {tokens.weight, positions.weight}) table.detach().mul_(0.1);
  }
  Tensor forward(const Tensor& in) override {
    const Tensor x = blocks(first ? tokens(in) + positions.weight.slice(0, 0, in.size(1)) : in);
    return last ? matmul(norm(x), transpose(tokens.weight, 0, 1)) : x;
  }
  void members(nn::Members& m) override {
    first || last ? m("tokens", tokens) : m.without(tokens);
    first ? m("positions", positions) : m.without(positions);
    m("blocks", blocks);
    last ? m("norm", norm) : m.without(norm);
  }
  bool first, last;
  nn::Embedding tokens, positions;
  nn::Sequential blocks;
  nn::LayerNorm norm;
};

struct Part : nn::ModuleActor<Blocks> {
  using ModuleActor::ModuleActor;
  Tensor forward(Tensor x) { return net(x); }
  Tensor loss(Tensor logits, Tensor next) { return cross_entropy(logits.flatten(0, 1), next.flatten()); }
  static constexpr auto remote = methods<&Part::forward, &Part::loss>;
};

int main(int argc, char** argv) {
  tools::Flags flags("char_pipeline", "Trains a small transformer on a UTF-8 text file, as a pipeline.");
  auto& steps = flags.whole("--steps", 500, "training steps", {1, 1e7});
  auto& batch = flags.whole("--batch", 16, "sequences per step", {1, 1e5});
  auto& micro_batches = flags.whole("--micro-batches", 4, "that a batch is cut into", {1, 1e4});
  auto& layout_file = flags.text("--layout", "", "where the stages live, and their schedule (JSON)");
  auto& context = flags.whole("--context", 64, "characters that it sees", {1, 65536});
  auto& width = flags.whole("--width", 64, "of the model", {1, 65536});
  auto& blocks = flags.whole("--blocks", 4, "of the transformer", {1, 1000});
  auto& lr = flags.number("--lr", 3e-3, "highest learning rate; a warm-up, then a cosine to zero", {0, 100});
  auto& seed = flags.seed("of the windows");
  auto& picture = flags.picture("--chart", "char_pipeline.svg", "picture of the loss (SVG)");
  auto& timeline = flags.picture("--timeline", "char_pipeline_step.svg", "picture of the last step (SVG)");
  auto& file = flags.file("FILE", "the text");
  auto& saved = flags.checkpoints();
  if (auto code = flags.reaches("perplexity <= 11", "on 1 MB of English").parse(argc, argv)) return *code;

  const auto train = [&](Cluster& cluster) {
    flags.check_outputs();
    const datasets::Text text = datasets::read_text(file);
    const Sizes sizes{text.vocabulary.size(), width, blocks, context};
    auto places = cluster.workers();  // all but the driver, unless a file says otherwise
    if (places.size() > 1) places.erase(places.begin());
    auto layout = layout_file.empty() ? parallel::Layout() : parallel::read_layout(layout_file);
    places = layout.stages(places);
    auto options = layout.pipeline(places.size(), {.micro_batches = static_cast<int>(micro_batches)});
    layout.check_all_read();

    const int64_t count = std::ssize(places);
    if (count > blocks) throw_invalid("more stages than blocks: give more --blocks, or fewer workers");
    std::vector<parallel::Stage> stages;
    for (int64_t s = 0; s < count; ++s)
      stages.push_back(parallel::stage<&Part::forward>(cluster.spawn<Part>(
          places[static_cast<size_t>(s)], sizes, s * blocks / count, (s + 1) * blocks / count)));
    stages.back() = stages.back().with_loss<&Part::loss>();
    if (count > 1) options.tied = {{{0, "tokens.weight"}, {static_cast<int>(count) - 1, "tokens.weight"}}};
    parallel::Pipeline pipeline(cluster.here(), stages, options);
    optim::Distributed<optim::AdamW> optimizer(parallel::actors_of(stages), {.lr = lr});
    optim::Scheduler rate(optimizer, optim::warm_up(std::max<int64_t>(1, steps / 20), optim::cosine(steps)));

    Generator random(seed);
    tools::Training training(picture, "Characters of " + file, steps, {.smooth = 16});
    Keep keep("random", random);
    Job job(cluster);
    for ([[maybe_unused]] const int64_t step : job.steps(steps)) {
      const auto [x, y] = datasets::random_windows(text.ids, context, batch, random);
      autograd::Context gradients(cluster);
      const double loss = pipeline.step(Value(x), Value(y)).loss;
      optimizer.clip_grad_norm(gradients, 1.0), optimizer.step(gradients), rate.step();
      training.step(loss, batch * context, {{"perplexity", std::exp(loss)}});
    }
    training.print(pipeline.step_report().str());
    training.finish("loss %.9f, perplexity %.2f in the last 20 steps, the last one in %s", training.loss(20),
                    std::exp(training.loss(20)), timeline.c_str());
    tools::write_timeline(timeline, pipeline.step_report());
  };
  return launch(train, {.checkpoints = saved});
}
