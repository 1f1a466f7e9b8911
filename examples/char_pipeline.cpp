// A transformer learns a text file character by character, in stages over the workers: alone in one process,
// or as many with `troupe run -n 3 char_pipeline FILE`. The first stage's embedding is the last one's matrix,
// too.
#include <cstdio>
#include <deque>

#include "data/text.h"
#include "parallel/pipeline/pipeline.h"
#include "tools/draw/chart.h"
#include "tools/draw/layout.h"
#include "tools/draw/timeline.h"
#include "tools/flags/flags.h"
#include "tools/flags/progress.h"
#include "troupe/troupe.h"
using namespace troupe;

struct Sizes {
  int64_t vocabulary = 0, width = 64, heads = 4, blocks = 4, context = 64;
};

struct Blocks : nn::Layer {  // blocks [begin, end): ids or activations in, activations or logits out
  Blocks(const Sizes& sizes, int64_t begin, int64_t end)
      : first(begin == 0),
        last(end == sizes.blocks),
        tokens(sizes.vocabulary, sizes.width),
        positions(sizes.context, sizes.width),
        norm(sizes.width) {
    for (int64_t i = begin; i < end; ++i) blocks.emplace_back(sizes.width, sizes.heads);
    Generator random(static_cast<uint64_t>(begin));
    reset(random);
    // Small, since the matrix also ends the model; both, or the positions drown the characters.
    for (const Tensor& table : {tokens.weight, positions.weight}) table.detach().mul_(0.1);
  }
  Tensor forward(const Tensor& in) override {
    Tensor x = first ? tokens(in) + positions.weight.slice(0, 0, in.size(1)) : in;
    for (auto& block : blocks) x = block(x);
    return last ? matmul(norm(x), transpose(tokens.weight, 0, 1)) : x;
  }
  void members(nn::Members& m) override {
    first || last ? m("tokens", tokens) : m.without(tokens);
    first ? m("positions", positions) : m.without(positions);
    for (size_t i = 0; i < blocks.size(); ++i) m("block" + std::to_string(i), blocks[i]);
    last ? m("norm", norm) : m.without(norm);
  }
  bool first, last;
  nn::Embedding tokens, positions;
  std::deque<nn::TransformerBlock> blocks;
  nn::LayerNorm norm;
};

struct Part : nn::ModuleActor<Blocks> {
  Part(Sizes sizes, int64_t begin, int64_t end) : ModuleActor(sizes, begin, end) {}
  Tensor forward(Tensor x) { return net(x); }
  Tensor loss(Tensor logits, Tensor next) {
    return cross_entropy(logits.reshape({-1, logits.size(2)}), next.reshape({-1}));
  }
  static constexpr auto remote = methods<&Part::forward, &Part::loss>;
};

int main(int argc, char** argv) {
  std::vector<std::string> files;
  std::string layout_file, picture = "char_pipeline.svg", timeline = "char_pipeline_step.svg";
  int64_t steps = 500, batch = 16, micro_batches = 4;
  Sizes sizes;
  uint64_t seed = 0;
  double lr = 3e-3;
  tools::Flags flags("char_pipeline", "Trains a small transformer on a UTF-8 text file, as a pipeline.");
  flags.add("--steps", steps, "training steps", {1, 1e7})
      .add("--batch", batch, "sequences per step", {1, 1e5})
      .add("--micro-batches", micro_batches, "that a batch is cut into", {1, 1e4})
      .add("--layout", layout_file, "where the stages live and by which schedule they run (JSON)")
      .add("--context", sizes.context, "characters that it sees", {1, 65536})
      .add("--width", sizes.width, "of the model", {1, 65536})
      .add("--blocks", sizes.blocks, "of the transformer", {1, 1000})
      .add("--lr", lr, "highest learning rate; a warm-up, then a cosine to zero", {0, 100})
      .add("--seed", seed, "of the windows")
      .output("--chart", picture, "picture of the loss (SVG)")
      .output("--timeline", timeline, "picture of the last step (SVG)")
      .rest("FILE", files, "the text")
      .reaches("perplexity <= 11", "on a megabyte of English");
  if (auto code = flags.parse(argc, argv)) return *code;

  return launch(hosting<Part>(), [&](Cluster& cluster) {
    flags.check_outputs();
    if (files.size() != 1) throw_invalid("give one text file, behind all flags (see --help)");
    const data::Text text = data::read_text(files[0]);
    sizes.vocabulary = text.vocabulary.size();
    tools::Layout layout{.places = cluster.workers()};  // all but the driver, unless a file says otherwise
    if (layout.places.size() > 1) layout.places.erase(layout.places.begin());
    layout.pipeline.micro_batches = static_cast<int>(micro_batches);
    if (!layout_file.empty()) layout = tools::read_layout(layout_file);

    const auto count = static_cast<int64_t>(layout.places.size());
    if (count > sizes.blocks) throw_invalid("more stages than blocks: give more --blocks, or fewer workers");
    std::vector<parallel::Stage> stages;
    std::vector<AnyRef> parts;
    for (int64_t s = 0; s < count; ++s) {
      const auto part = cluster.spawn<Part>(layout.places[static_cast<size_t>(s)], sizes,
                                            s * sizes.blocks / count, (s + 1) * sizes.blocks / count);
      stages.push_back(parallel::stage<&Part::forward>(part));
      parts.push_back(part);
      if (s + 1 == count) stages.back() = stages.back().with_loss<&Part::loss>();
    }
    if (count > 1)
      layout.pipeline.tied = {{{0, "tokens.weight"}, {static_cast<int>(count) - 1, "tokens.weight"}}};
    parallel::Pipeline pipeline(cluster.here(), stages, layout.pipeline);
    optim::Distributed<optim::AdamW> optimizer(parts, {.lr = lr});
    optim::Scheduler rate(optimizer, optim::warm_up(std::max<int64_t>(1, steps / 20), optim::cosine(steps)));

    Generator random(seed);
    tools::Series losses{.name = "training loss", .smooth = 16};
    tools::Progress bar({.total = steps});
    for (int64_t step = 1; step <= steps; ++step) {
      const auto [x, y] = data::random_windows(text.ids, sizes.context, batch, random);
      autograd::Context context(cluster);
      const double loss = pipeline.step(Value(x), Value(y)).loss;
      optimizer.clip_grad_norm(context, 1.0), optimizer.step(context), rate.step();
      losses.x.push_back(static_cast<double>(step)), losses.y.push_back(loss);
      bar.update(step, {{"loss", loss}, {"perplexity", std::exp(loss)}}, batch * sizes.context);
    }
    bar.finish();
    std::printf("%s\n", pipeline.step_report().str().c_str());
    const double loss = losses.mean_of_last(20);
    std::printf("loss %.9f, perplexity %.2f in the last 20 steps; pictures: %s, %s\n", loss, std::exp(loss),
                picture.c_str(), timeline.c_str());
    tools::write_chart(picture, {"Characters of " + files[0], "step", "loss", "", {losses}});
    tools::write_timeline(timeline, pipeline.step_report());
  });
}
