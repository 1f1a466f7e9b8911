// An LSTM learns a text character by character; its embedding and its decoder, which grow with the
// vocabulary, live on a server, and gradients run through the calls to it. Alone (`rnn_remote FILE`), or
// `troupe run -n 3 rnn_remote FILE`, with the same bits.
#include <troupe/data.h>
#include <troupe/tools/program.h>
#include <troupe/troupe.h>
using namespace troupe;

template <class Layer>
struct Served : Actor {  // a layer on the server
  Served(int64_t in, int64_t out, uint64_t seed) : random(seed), net(in, out) { net.reset(random); }
  Tensor forward(Tensor x) { return net(x); }
  Generator random;
  Layer net;
  static constexpr auto remote = methods<&Served::forward>;
};
using Table = Served<nn::Embedding>;  // ids [batch, time] -> [batch, time, width]
using Decoder = Served<nn::Linear>;   // [batch, time, hidden] -> logits

struct Trainer : Actor {  // has the recurrent part, and asks for the others
  Trainer(RRef<Table> table, RRef<Decoder> decoder, int64_t width, int64_t hidden, int64_t layers,
          uint64_t seed)
      : net(width, hidden, {.layers = layers, .batch_first = true}), table(table), decoder(decoder) {
    Generator random(seed);
    net.reset(random);
  }
  // The mean loss of each character after those before it. Goes on in the state in which the call before it
  // ended, of which no gradient runs further back.
  Task<Tensor> loss(Tensor ids) {
    const auto looked_up = table(ids.slice(1, 0, -1));
    const auto [out, next_h, next_c] = net.run(co_await looked_up, h, c);
    h = next_h.detach(), c = next_c.detach();
    const auto decoded = decoder(out);
    const Tensor logits = co_await decoded;
    co_return cross_entropy(logits.flatten(0, 1), ids.slice(1, 1, ids.size(1)).flatten());
  }
  void forget() { h = c = Tensor(); }
  nn::LSTM net;
  RRef<Table> table;
  RRef<Decoder> decoder;
  Tensor h, c;
  Keep keep{"h", h, "c", c};
  static constexpr auto remote = methods<&Trainer::loss, &Trainer::forget>;
};

// Ids [n] as `rows` streams side by side, cut into parts of `time` characters and the one that follows.
Tensors parts(const Tensor& ids, int64_t rows, int64_t time) {
  const Tensor streams = ids.slice(0, 0, ids.numel() / rows * rows).reshape({rows, -1});
  Tensors out;
  for (int64_t t = 0; t + time < streams.size(1); t += time) out.push_back(streams.slice(1, t, t + time + 1));
  if (out.empty()) throw_invalid("the text is too short: give a longer one, or a smaller --batch or --time");
  return out;
}

int main(int argc, char** argv) {
  tools::Flags flags("rnn_remote", "Trains an LSTM on a UTF-8 text file, with a server for the rest.");
  auto& epochs = flags.whole("--epochs", 20, "passes over the text", {1, 1e6});
  auto& batch = flags.whole("--batch", 16, "places of the text that are read at once", {1, 1e5});
  auto& time = flags.whole("--time", 32, "characters that gradients run back over", {1, 65536});
  auto& width = flags.whole("--width", 32, "of the embedding", {1, 65536});
  auto& hidden = flags.whole("--hidden", 128, "units of the LSTM", {1, 65536});
  auto& layers = flags.whole("--layers", 1, "of the LSTM", {1, 100});
  auto& lr = flags.number("--lr", 5e-3, "rate of Adam at the start; it falls to zero by a cosine", {0, 100});
  auto& seed = flags.seed("of the weights");
  auto& picture = flags.picture("--chart", "rnn_remote.svg", "picture of the loss (SVG)");
  auto& file = flags.file("FILE", "the text; its last tenth is for validation");
  auto& saved = flags.checkpoints();
  if (auto code = flags.reaches("validation perplexity <= 9", "on LICENSE").parse(argc, argv)) return *code;

  const auto train = [&](Cluster& cluster) {
    flags.check_outputs();
    const auto [vocabulary, ids] = datasets::read_text(file);
    const int64_t length = ids.numel(), fitted = length - length / 10, characters = vocabulary.size();
    const Tensors train_parts = parts(ids.slice(0, 0, fitted), batch, time);
    const Tensors held_out = parts(ids.slice(0, fitted, length), std::min<int64_t>(batch, 4), time);

    const auto workers = cluster.workers();
    const std::string server = workers[1 % workers.size()], home = workers[2 % workers.size()];
    const auto table = cluster.spawn<Table>(server, characters, width, seed);
    const auto decoder = cluster.spawn<Decoder>(server, hidden, characters, seed + 1);
    const auto trainer = cluster.spawn<Trainer>(home, table, decoder, width, hidden, layers, seed + 2);
    const int64_t steps = epochs * std::ssize(train_parts);
    optim::Distributed<optim::Adam> optimizer({table, trainer, decoder}, {.lr = lr});
    optim::Scheduler rate(optimizer, optim::cosine(steps));
    tools::Training training(picture, "Characters of " + file, steps,
                             {.epochs = epochs, .measure = "validation loss", .same_axis = true});
    Job job(cluster);
    for (const int64_t step : job.steps(steps)) {
      const int64_t at = step % std::ssize(train_parts);
      if (at == 0) trainer.call<&Trainer::forget>().get();
      {
        autograd::Context context(cluster);
        const Tensor loss = trainer.call<&Trainer::loss>(train_parts[static_cast<size_t>(at)]).get();
        context.backward(loss);  // trainer to decoder, back to the trainer, and on to the table
        optimizer.clip_grad_norm(context, 1.0), optimizer.step(context), rate.step();
        training.step(loss.item(), batch * time, {{"perplexity", std::exp(loss.item())}});
      }
      if (at + 1 < std::ssize(train_parts)) continue;
      NoGradGuard no_grad;
      trainer.call<&Trainer::forget>().get();
      double sum = 0;
      for (const Tensor& part : held_out) sum += trainer.call<&Trainer::loss>(part).get().item();
      training.measure(sum / static_cast<double>(held_out.size()));
    }
    training.finish("validation perplexity %.6f of %ld characters after %ld steps",
                    std::exp(training.measured()), characters, steps);
  };
  return launch(train, {.checkpoints = saved});
}
