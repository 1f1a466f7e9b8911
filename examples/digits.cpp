// A digit classifier whose two halves live on two workers: alone (`digits`), or `troupe run -n 3 digits`.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "data/digits.h"
#include "data/idx.h"
#include "tools/draw/chart.h"
#include "tools/flags/flags.h"
#include "tools/flags/progress.h"
#include "troupe/troupe.h"
using namespace troupe;

struct Bottom : Actor {  // [batch, 784] -> [batch, 128]
  explicit Bottom(uint64_t seed) : random(seed), fc(784, 128, random) {}
  Tensor forward(Tensor x) { return relu(fc(x)); }
  Tensors parameters() override { return fc.parameters(); }
  Generator random;
  nn::Linear fc;
  static constexpr auto remote = methods<&Bottom::forward>;
};

struct Top : Actor {  // [batch, 128] -> [batch, 10], logits
  explicit Top(uint64_t seed) : random(seed), hidden(128, 64, random), out(64, 10, random) {}
  Tensor forward(Tensor x) { return out(relu(hidden(x))); }
  Tensors parameters() override { return {hidden.weight, hidden.bias, out.weight, out.bias}; }
  Generator random;
  nn::Linear hidden, out;
  static constexpr auto remote = methods<&Top::forward>;
};

double accuracy(const RRef<Bottom>& bottom, const RRef<Top>& top, const data::Dataset& test) {
  NoGradGuard no_grad;
  double right = 0;
  data::Loader loader(test, {.batch_size = 500, .shuffle = false});
  for (auto [x, y, index] : loader.epoch(0)) {
    Tensor logits = top.call<&Top::forward>(bottom.call<&Bottom::forward>(x)).get();
    right += eq(logits.argmax(1), y).to(float32).sum().item();
  }
  return right / static_cast<double>(test.size());
}

int main(int argc, char** argv) {
  std::string dir, picture = "digits.svg";
  int64_t epochs = 5, batch = 64;
  uint64_t seed = 0;
  double lr = 0.05, momentum = 0.9;
  bool json = false;
  tools::Flags flags("digits", "Trains a digit classifier (784-128-64-10) split over two workers.");
  flags.add("--data", dir, "folder with MNIST's IDX files, gzipped or not; without it, digits are drawn")
      .add("--epochs", epochs, "passes over the training set", {1, 1e6})
      .add("--batch", batch, "samples per step", {1, 1e6})
      .add("--lr", lr, "learning rate at the start; it falls to zero by a cosine", {0, 100})
      .add("--momentum", momentum, "momentum of SGD", {0, 0.9999})
      .add("--seed", seed, "of weights, order and drawn digits")
      .output("--chart", picture, "picture of loss and accuracy (SVG)")
      .add("--json", json, "end with the result as one JSON line on standard output")
      .reaches("test accuracy >= 97", "on drawn digits");
  if (auto code = flags.parse(argc, argv)) return *code;

  return launch(hosting<Bottom, Top>(), [&](Cluster& cluster) {
    flags.check_outputs();
    const data::Split set = dir.empty() ? data::generated_split(seed) : data::mnist_split(dir);
    const auto names = cluster.workers();  // with fewer than three, they host more than one thing
    auto bottom = cluster.spawn<Bottom>(names[1 % names.size()], seed);
    auto top = cluster.spawn<Top>(names[2 % names.size()], seed + 1);
    optim::Distributed<optim::SGD> optimizer({bottom, top}, {.lr = lr, .momentum = momentum});
    data::Loader loader(set.train, {.batch_size = batch, .seed = seed});
    const int64_t steps = epochs * loader.batches();
    tools::Series losses{.name = "training loss", .smooth = 8};
    tools::Series accuracies{.name = "test accuracy", .right = true};
    int64_t done = 0;
    double loss = 0, correct = 0;
    tools::Progress bar({.total = steps});
    const auto start = std::chrono::steady_clock::now();
    for (int64_t epoch = 0; epoch < epochs; ++epoch) {
      bar.set_label("epoch " + std::to_string(epoch + 1) + "/" + std::to_string(epochs));
      for (auto [x, y, index] : loader.epoch(epoch)) {
        const double part = static_cast<double>(done) / static_cast<double>(steps);
        optimizer.set_lr(0.5 * lr * (1 + std::cos(std::numbers::pi * part)));
        autograd::Context step(cluster);
        Tensor error = cross_entropy(top.call<&Top::forward>(bottom.call<&Bottom::forward>(x)).get(), y);
        step.backward(error);
        optimizer.step(step);
        loss = error.item();
        losses.x.push_back(static_cast<double>(++done)), losses.y.push_back(loss);
        bar.update(done, {{"loss", loss}}, x.size(0));
      }
      correct = accuracy(bottom, top, set.test);
      accuracies.x.push_back(static_cast<double>(done)), accuracies.y.push_back(correct);
    }
    bar.finish();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const std::string title = "Digits on " + std::to_string(names.size()) + " workers";
    std::printf("test accuracy %.2f %% after %lld steps in %.1f s; picture: %s\n", 100 * correct,
                static_cast<long long>(done), seconds, picture.c_str());
    nlohmann::json result{{"test_accuracy", correct}, {"final_loss", loss}, {"steps", done}};
    result["samples_per_s"] = static_cast<double>(epochs * loader.size()) / seconds;
    result["seconds"] = seconds;
    if (json) std::printf("%s\n", result.dump().c_str());
    tools::write_chart(picture, {title, "step", "loss", "test accuracy", {losses, accuracies}});
  });
}
