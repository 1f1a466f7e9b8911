// An LSTM learns a text character by character; its embedding and its decoder, which grow with the
// vocabulary, live on a server, and gradients run through the calls to it. Alone (`rnn_remote FILE`), or
// `troupe run -n 3 rnn_remote FILE`, with the same bits.
#include <cstdio>

#include "data/text.h"
#include "tools/draw/chart.h"
#include "tools/flags/flags.h"
#include "tools/flags/progress.h"
#include "troupe/troupe.h"
using namespace troupe;

struct Table : nn::ModuleActor<nn::Embedding> {  // on the server: ids [batch, time] -> [batch, time, width]
  Table(int64_t vocabulary, int64_t width, uint64_t seed) : ModuleActor(vocabulary, width) {
    Generator random(seed);
    net.reset(random);
  }
  Tensor forward(Tensor ids) { return net(ids); }
  static constexpr auto remote = methods<&Table::forward>;
};

struct Decoder : nn::ModuleActor<nn::Linear> {  // on the server: [batch, time, hidden] -> logits
  Decoder(int64_t hidden, int64_t vocabulary, uint64_t seed) : ModuleActor(hidden, vocabulary) {
    Generator random(seed);
    net.reset(random);
  }
  Tensor forward(Tensor x) { return net(x); }
  static constexpr auto remote = methods<&Decoder::forward>;
};

struct Trainer : nn::ModuleActor<nn::LSTM> {  // has the recurrent part, and asks for the others
  Trainer(RRef<Table> table, RRef<Decoder> decoder, int64_t width, int64_t hidden, int64_t layers,
          uint64_t seed)
      : ModuleActor(width, hidden, nn::RecurrentOptions{.layers = layers, .batch_first = true}),
        table(table),
        decoder(decoder) {
    Generator random(seed);
    net.reset(random);
  }
  // The mean loss of characters y that follow x. Goes on in the state in which the call before it ended, of
  // which no gradient runs further back.
  Task<Tensor> loss(Tensor x, Tensor y) {
    const auto looked_up = table.call<&Table::forward>(x);
    const auto [out, next_h, next_c] = net.run(co_await looked_up, h, c);
    h = next_h.detach(), c = next_c.detach();
    const auto decoded = decoder.call<&Decoder::forward>(out);
    const Tensor logits = co_await decoded;
    co_return cross_entropy(logits.reshape({y.numel(), -1}), y.reshape({-1}));
  }
  void forget() { h = c = Tensor(); }
  RRef<Table> table;
  RRef<Decoder> decoder;
  Tensor h, c;
  static constexpr auto remote = methods<&Trainer::loss, &Trainer::forget>;
};

// Ids [n] as `rows` streams side by side, [rows, n / rows]; step t of `time` characters of each, and those
// that follow them.
struct Streams {
  Streams(const Tensor& all, int64_t rows, int64_t time)
      : ids(all.slice(0, 0, all.numel() / rows * rows).reshape({rows, -1})), time(time) {
    if (steps() < 1)
      throw_invalid(
          "the text is too short for streams of that number and length: give a longer one, or a smaller "
          "--batch or --time");
  }
  int64_t steps() const { return (ids.size(1) - 1) / time; }
  Tensor x(int64_t t) const { return ids.slice(1, t * time, (t + 1) * time); }
  Tensor y(int64_t t) const { return ids.slice(1, t * time + 1, (t + 1) * time + 1); }
  Tensor ids;
  int64_t time;
};

int main(int argc, char** argv) {
  std::vector<std::string> files;
  std::string picture = "rnn_remote.svg";
  int64_t epochs = 20, batch = 16, time = 32, width = 32, hidden = 128, layers = 1;
  uint64_t seed = 0;
  double lr = 5e-3;
  tools::Flags flags("rnn_remote",
                     "Trains an LSTM on a UTF-8 text file, with embedding and decoder on a server.");
  flags.add("--epochs", epochs, "passes over the text", {1, 1e6})
      .add("--batch", batch, "places of the text that are read at once", {1, 1e5})
      .add("--time", time, "characters that gradients run back over", {1, 65536})
      .add("--width", width, "of the embedding", {1, 65536})
      .add("--hidden", hidden, "units of the LSTM", {1, 65536})
      .add("--layers", layers, "of the LSTM", {1, 100})
      .add("--lr", lr, "learning rate of Adam at the start; it falls to zero by a cosine", {0, 100})
      .add("--seed", seed, "of the weights")
      .output("--chart", picture, "picture of the loss (SVG)")
      .rest("FILE", files, "the text; its last tenth is for validation")
      .reaches("validation perplexity <= 9", "on the file LICENSE");
  if (auto code = flags.parse(argc, argv)) return *code;

  return launch(hosting<Table, Decoder, Trainer>(), [&](Cluster& cluster) {
    flags.check_outputs();
    if (files.size() != 1) throw_invalid("give one text file, behind all flags (see --help)");
    const data::Text text = data::read_text(files[0]);
    const int64_t length = text.ids.numel(), characters = text.vocabulary.size();
    const Streams train(text.ids.slice(0, 0, length - length / 10), batch, time);
    const Streams held_out(text.ids.slice(0, length - length / 10, length), std::min<int64_t>(batch, 4),
                           time);

    const auto workers = cluster.workers();
    const std::string server = workers[1 % workers.size()], home = workers[2 % workers.size()];
    const auto table = cluster.spawn<Table>(server, characters, width, seed);
    const auto decoder = cluster.spawn<Decoder>(server, hidden, characters, seed + 1);
    const auto trainer = cluster.spawn<Trainer>(home, table, decoder, width, hidden, layers, seed + 2);
    optim::Distributed<optim::Adam> optimizer({table, trainer, decoder}, {.lr = lr});
    const int64_t total = epochs * train.steps();
    optim::Scheduler rate(optimizer, optim::cosine(total));

    tools::Series fitted{.name = "training", .smooth = 8}, tested{.name = "validation"};
    tools::Progress bar({.total = total});
    for (int64_t step = 0; step < total; ++step) {
      const int64_t t = step % train.steps();
      if (t == 0) trainer.call<&Trainer::forget>().get();
      {
        autograd::Context context(cluster);
        const Tensor loss = trainer.call<&Trainer::loss>(train.x(t), train.y(t)).get();
        context.backward(loss);  // trainer to decoder, back to the trainer, and on to the table
        optimizer.clip_grad_norm(context, 1.0), optimizer.step(context), rate.step();
        fitted.x.push_back(static_cast<double>(step + 1)), fitted.y.push_back(loss.item());
        bar.update(step + 1, {{"perplexity", std::exp(loss.item())}}, batch * time);
      }
      if (t + 1 < train.steps()) continue;
      NoGradGuard no_grad;
      trainer.call<&Trainer::forget>().get();
      double sum = 0;
      for (int64_t i = 0; i < held_out.steps(); ++i)
        sum += trainer.call<&Trainer::loss>(held_out.x(i), held_out.y(i)).get().item();
      tested.x.push_back(static_cast<double>(step + 1));
      tested.y.push_back(sum / static_cast<double>(held_out.steps()));
    }
    bar.finish();
    std::printf("validation perplexity %.6f of %lld characters after %lld steps; picture: %s\n",
                std::exp(tested.y.back()), static_cast<long long>(characters), static_cast<long long>(total),
                picture.c_str());
    tools::write_chart(picture, {"Characters of " + files[0], "step", "loss", "", {fitted, tested}});
  });
}
