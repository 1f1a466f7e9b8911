// A transformer learns a text file character by character, and writes some of its own.
#include <troupe/data.h>
#include <troupe/gradients.h>
#include <troupe/tools/program.h>
#include <troupe/troupe.h>
using namespace troupe;

struct Model : nn::Layer {  // ids [batch, time] -> logits [batch, time, vocabulary]
  Model(int64_t vocabulary, int64_t width, int64_t heads, int64_t layers, int64_t context)
      : tokens(vocabulary, width), positions(context, width), norm(width), head(width, vocabulary) {
    const nn::TransformerEncoderLayerOptions gpt{
        .dim_feedforward = 4 * width, .dropout = 0, .activation = "gelu", .norm_first = true, .causal = true};
    for (int64_t i = 0; i < layers; ++i) blocks.add(nn::TransformerEncoderLayer(width, heads, gpt));
  }
  Tensor forward(const Tensor& ids) override {
    Tensor x = tokens(ids) + positions.weight.slice(0, 0, ids.size(1));
    for (size_t i = 0; i < blocks.size(); ++i)
      x = recompute ? autograd::checkpoint([this, i](const Tensor& in) { return blocks[i](in); }, x)
                    : blocks[i](x);
    return head(norm(x));
  }
  void members(nn::Members& m) override {
    m("tokens", tokens), m("positions", positions), m("norm", norm), m("head", head), m("blocks", blocks);
  }
  nn::Embedding tokens, positions;
  nn::Sequential blocks;
  nn::LayerNorm norm;
  nn::Linear head;
  bool recompute = false;
};

// `count` characters that the model writes.
std::string sample(Model& model, const datasets::Vocabulary& all, int64_t count, Generator& random) {
  NoGradGuard no_grad;
  ops::PackedWeights packed;
  const ops::PackedWeights::Use use(packed);
  std::vector<int64_t> ids{static_cast<int64_t>(random.below(static_cast<uint64_t>(all.size())))};
  for (int64_t i = 0; i < count; ++i) {
    const auto seen = std::min<int64_t>(model.positions.weight.size(0), std::ssize(ids));
    const Tensor logits =
        model(tensor(std::vector(ids.end() - seen, ids.end()), model.head.weight.device()).unsqueeze(0));
    const auto p = softmax(logits.slice(1, seen - 1, seen).reshape({-1}) / 0.8, 0).to_vector<double>();
    double left = random.uniform();
    size_t next = 0;
    while (next + 1 < p.size() && (left -= p[next]) > 0) ++next;
    ids.push_back(static_cast<int64_t>(next));
  }
  return all.decode(tensor(ids));
}

int main(int argc, char** argv) {
  tools::Flags flags("char_transformer", "Trains a small transformer on a UTF-8 text file; prints a sample.");
  auto& steps = flags.whole("--steps", 500, "training steps", {1, 1e7});
  auto& batch = flags.whole("--batch", 16, "sequences per step", {1, 1e5});
  auto& context = flags.whole("--context", 64, "characters that it sees", {1, 65536});
  auto& width = flags.whole("--width", 64, "of the model", {1, 65536});
  auto& heads = flags.whole("--heads", 4, "of the attention", {1, 1024});
  auto& layers = flags.whole("--layers", 2, "blocks", {1, 1000});
  auto& lr = flags.number("--lr", 3e-3, "highest learning rate; a warm-up, then a cosine to zero", {0, 100});
  auto& recompute = flags.given("--recompute", "keep no activations inside blocks: less memory, more time");
  auto& length = flags.whole("--sample", 300, "characters to write at the end", {0, 1e6});
  auto& seed = flags.seed("of weights, windows and the sample");
  auto& device = flags.text("--device", "cpu", "where it computes: cpu, cuda:0, ...");
  auto& picture = flags.picture("--chart", "char_transformer.svg", "picture of the loss (SVG)");
  auto& file = flags.file("FILE", "the text");
  auto& saved = flags.checkpoints();
  if (auto code = flags.reaches("perplexity <= 11", "on 1 MB of English").parse(argc, argv)) return *code;

  return tools::run_main(flags, [&] {
    const auto [vocabulary, ids] = datasets::read_text(file);
    Generator random(seed);
    Model model(vocabulary.size(), width, heads, layers, context);
    model.recompute = recompute;
    model.reset(random);
    const Device place(device);
    model.to(place);
    optim::AdamW optimizer(model.parameters(), {.lr = lr});
    optim::Scheduler rate(optimizer, optim::warm_up(std::max<int64_t>(1, steps / 20), optim::cosine(steps)));
    tools::Training training(picture, "Characters of " + file, steps, {.smooth = 16});
    Keep keep("random", random);
    Job job(saved);
    for ([[maybe_unused]] const int64_t step : job.steps(steps)) {
      const auto [x, y] = datasets::random_windows(ids, context, batch, random);
      optimizer.zero_grad();
      Tensor loss =
          cross_entropy(model(x.to(place)).reshape({batch * context, -1}), y.reshape({-1}).to(place));
      autograd::backward(loss);
      optim::clip_grad_norm_(optimizer.params(), 1.0), optimizer.step(), rate.step();
      training.step(loss.item(), batch * context, {{"perplexity", std::exp(loss.item())}});
    }
    training.print(sample(model, vocabulary, length, random));
    training.finish("perplexity %.2f of %ld characters in the last 20 steps", std::exp(training.loss(20)),
                    vocabulary.size());
  });
}
