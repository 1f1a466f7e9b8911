// A digit classifier whose two halves live on two workers: alone (`digits`), or `troupe run -n 3 digits`.
#include <troupe/data.h>
#include <troupe/tools/program.h>
#include <troupe/troupe.h>
using namespace troupe;

struct Bottom : Actor {  // [batch, 784] -> [batch, 128]
  explicit Bottom(uint64_t seed) : random(seed), fc(784, 128, random) {}
  Tensor forward(Tensor x) { return relu(fc(x)); }
  Generator random;
  nn::Linear fc;
  static constexpr auto remote = methods<&Bottom::forward>;
};

struct Top : Actor {  // [batch, 128] -> [batch, 10], logits
  explicit Top(uint64_t seed) : random(seed), hidden(128, 64, random), out(64, 10, random) {}
  Tensor forward(Tensor x) { return out(relu(hidden(x))); }
  Generator random;
  nn::Linear hidden, out;
  static constexpr auto remote = methods<&Top::forward>;
};

int main(int argc, char** argv) {
  tools::Flags flags("digits", "Trains a digit classifier (784-128-64-10) split over two workers.");
  auto& dir =
      flags.text("--data", "", "folder of MNIST's IDX files, maybe gzipped; without it, digits are drawn");
  auto& epochs = flags.whole("--epochs", 5, "passes over the training set", {1, 1e6});
  auto& batch = flags.whole("--batch", 64, "samples per step", {1, 1e6});
  auto& lr = flags.number("--lr", 0.05, "learning rate at the start; it falls to zero by a cosine", {0, 100});
  auto& momentum = flags.number("--momentum", 0.9, "momentum of SGD", {0, 0.9999});
  auto& seed = flags.seed("of weights, order and drawn digits");
  auto& device = flags.text("--device", "cpu", "where both halves compute: cpu, cuda:0, ...");
  auto& picture = flags.picture("--chart", "digits.svg", "picture of loss and accuracy (SVG)");
  auto& json = flags.given("--json", "end with the result as one JSON line on standard output");
  auto& saved = flags.checkpoints();
  if (auto code = flags.reaches("test accuracy >= 97", "on drawn digits").parse(argc, argv)) return *code;

  const auto train = [&](Cluster& cluster) {
    flags.check_outputs();
    const Device place(device);
    const datasets::Split set = dir.empty() ? datasets::generated_split(seed) : datasets::mnist_split(dir);
    const auto names = cluster.workers();  // with fewer than three, they host more than one thing
    const auto bottom = cluster.spawn<Bottom>(names[1 % names.size()], seed);
    const auto top = cluster.spawn<Top>(names[2 % names.size()], seed + 1);
    nn::remote_to(bottom, device).get(), nn::remote_to(top, device).get();
    datasets::Loader loader(set.train, {.batch_size = batch, .seed = seed});
    const int64_t steps = epochs * loader.batches();
    optim::Distributed<optim::SGD> optimizer({bottom, top}, {.lr = lr, .momentum = momentum});
    optim::Scheduler rate(optimizer, optim::cosine(steps));
    tools::Training training(picture, "Digits on " + std::to_string(names.size()) + " workers", steps,
                             {.epochs = epochs, .measure = "test accuracy"});
    const auto start = std::chrono::steady_clock::now();
    Job job(cluster);
    for (auto [x, y, epoch, last] : job.batches(loader, epochs)) {
      autograd::Context step(cluster);
      Tensor loss = cross_entropy(top(bottom(x.to(place))).get(), y.to(place));
      step.backward(loss);
      optimizer.step(step), rate.step();
      training.step(loss.item(), x.size(0));
      if (last)
        training.measure(datasets::accuracy(
            set.test, [&](const Tensor& x) { return top(bottom(x.to(place))).get().to(cpu); }));
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (json)
      training.set_json_line({{"test_accuracy", training.measured()},
                              {"final_loss", training.loss()},
                              {"steps", steps},
                              {"samples_per_s", static_cast<double>(epochs * loader.size()) / seconds},
                              {"seconds", seconds}});
    training.finish("test accuracy %.2f %% after %ld steps in %.1f s", 100 * training.measured(), steps,
                    seconds);
  };
  return launch(train, {.checkpoints = saved});
}
