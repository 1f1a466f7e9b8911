// A transformer learns a text file character by character, and writes some of its own.
#include <cstdio>
#include <deque>

#include "autograd/checkpoint.h"
#include "data/text.h"
#include "tools/draw/chart.h"
#include "tools/flags/flags.h"
#include "tools/flags/progress.h"
#include "troupe/troupe.h"
using namespace troupe;

struct Model : nn::Layer {  // ids [batch, time] -> logits [batch, time, vocabulary]
  Model(int64_t vocabulary, int64_t width, int64_t heads, int64_t layers, int64_t context)
      : tokens(vocabulary, width), positions(context, width), norm(width), head(width, vocabulary) {
    for (int64_t i = 0; i < layers; ++i) blocks.emplace_back(width, heads);
  }
  Tensor forward(const Tensor& ids) override {
    Tensor x = tokens(ids) + positions.weight.slice(0, 0, ids.size(1));
    for (auto& block : blocks)
      x = recompute ? autograd::checkpoint([&block](const Tensor& in) { return block(in); }, x) : block(x);
    return head(norm(x));
  }
  void members(nn::Members& m) override {
    m("tokens", tokens), m("positions", positions), m("norm", norm), m("head", head);
    for (size_t i = 0; i < blocks.size(); ++i) m("block" + std::to_string(i), blocks[i]);
  }
  nn::Embedding tokens, positions;
  std::deque<nn::TransformerBlock> blocks;
  nn::LayerNorm norm;
  nn::Linear head;
  bool recompute = false;
};

// `count` characters that the model writes.
std::string sample(Model& model, const data::Vocabulary& all, int64_t context, int64_t count,
                   Generator& random) {
  NoGradGuard no_grad;
  ops::PackedWeights packed;
  const ops::PackedWeights::Use use(packed);
  std::vector<int64_t> ids{static_cast<int64_t>(random.below(static_cast<uint64_t>(all.size())))};
  for (int64_t i = 0; i < count; ++i) {
    const auto seen = std::min<int64_t>(context, static_cast<int64_t>(ids.size()));
    Tensor logits = model(Tensor::of(std::vector<int64_t>(ids.end() - seen, ids.end()), {1, seen}));
    const auto p = softmax(logits.slice(1, seen - 1, seen).reshape({-1}) / 0.8, 0).to_vector<double>();
    double left = random.uniform();
    size_t next = 0;
    while (next + 1 < p.size() && (left -= p[next]) > 0) ++next;
    ids.push_back(static_cast<int64_t>(next));
  }
  return all.decode(Tensor::of(ids));
}

int main(int argc, char** argv) {
  std::vector<std::string> files;
  std::string picture = "char_transformer.svg";
  int64_t steps = 500, batch = 16, context = 64, width = 64, heads = 4, layers = 2, length = 300;
  uint64_t seed = 0;
  double lr = 3e-3;
  bool recompute = false;
  tools::Flags flags("char_transformer", "Trains a small transformer on a UTF-8 text file; prints a sample.");
  flags.add("--steps", steps, "training steps", {1, 1e7})
      .add("--batch", batch, "sequences per step", {1, 1e5})
      .add("--context", context, "characters that it sees", {1, 65536})
      .add("--width", width, "of the model", {1, 65536})
      .add("--heads", heads, "of the attention", {1, 1024})
      .add("--layers", layers, "blocks", {1, 1000})
      .add("--lr", lr, "highest learning rate; a warm-up, then a cosine to zero", {0, 100})
      .add("--recompute", recompute, "keep no activations inside blocks: less memory, more time")
      .add("--sample", length, "characters to write at the end", {0, 1e6})
      .add("--seed", seed, "of weights, windows and the sample")
      .output("--chart", picture, "picture of the loss (SVG)")
      .rest("FILE", files, "the text")
      .reaches("perplexity <= 11", "on a megabyte of English");
  if (auto code = flags.parse(argc, argv)) return *code;

  return tools::run_main("char_transformer", [&] {
    flags.check_outputs();
    if (files.size() != 1) throw_invalid("give one text file, behind all flags (see --help)");
    const data::Text text = data::read_text(files[0]);
    Generator random(seed);
    Model model(text.vocabulary.size(), width, heads, layers, context);
    model.recompute = recompute;
    model.reset(random);
    optim::AdamW optimizer(model.parameters(), {.lr = lr});
    optim::Scheduler rate(optimizer, optim::warm_up(std::max<int64_t>(1, steps / 20), optim::cosine(steps)));
    tools::Series losses{.name = "training loss", .smooth = 16};
    tools::Progress bar({.total = steps});
    for (int64_t step = 1; step <= steps; ++step) {
      const auto [x, y] = data::random_windows(text.ids, context, batch, random);
      optimizer.zero_grad();
      Tensor loss = cross_entropy(model(x).reshape({batch * context, -1}), y.reshape({-1}));
      autograd::backward(loss);
      optim::clip_grad_norm_(optimizer.params(), 1.0), optimizer.step(), rate.step();
      losses.x.push_back(static_cast<double>(step)), losses.y.push_back(loss.item());
      bar.update(step, {{"loss", loss.item()}, {"perplexity", std::exp(loss.item())}}, batch * context);
    }
    bar.finish();
    std::printf("%s\n", sample(model, text.vocabulary, context, length, random).c_str());
    std::printf("perplexity %.2f of %lld characters in the last 20 steps; picture: %s\n",
                std::exp(losses.mean_of_last(20)), static_cast<long long>(text.vocabulary.size()),
                picture.c_str());
    tools::write_chart(picture, {"Characters of " + files[0], "step", "loss", "", {losses}});
  });
}
