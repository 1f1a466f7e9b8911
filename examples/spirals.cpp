// Three arms of a spiral, told apart by a small perceptron; no files, no cluster: the plain training loop.
#include <cstdio>

#include "tools/draw/chart.h"
#include "tools/flags/flags.h"
#include "tools/flags/progress.h"
#include "troupe/troupe.h"
using namespace troupe;

// Points of `arms` arms, noisy: x [count, 2], y [count], the arm.
data::Dataset spirals(int64_t count, int64_t arms, double noise, Generator& random) {
  std::vector<float> points;
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t arm = i % arms;
    const double radius = random.uniform();
    const double angle =
        4 * radius + 2 * std::numbers::pi * static_cast<double>(arm) / static_cast<double>(arms);
    points.push_back(static_cast<float>(radius * std::sin(angle) + noise * random.normal()));
    points.push_back(static_cast<float>(radius * std::cos(angle) + noise * random.normal()));
    labels.push_back(arm);
  }
  return {Tensor::of(points, {count, 2}), Tensor::of(labels)};
}

double accuracy(nn::Layer& model, const data::Dataset& set) {
  NoGradGuard no_grad;
  return eq(model(set.x).argmax(1), set.y).to(float32).mean().item();
}

int main(int argc, char** argv) {
  int64_t epochs = 60, points = 1500, arms = 3, width = 64;
  uint64_t seed = 0;
  double lr = 0.01, noise = 0.02;
  std::string picture = "spirals.svg";
  tools::Flags flags("spirals", "Tells the arms of a spiral apart (2-width-width-arms, ReLU, AdamW).");
  flags.add("--epochs", epochs, "passes over the training set", {1, 1e6})
      .add("--points", points, "points to learn from", {10, 1e7})
      .add("--arms", arms, "arms of the spiral", {2, 10})
      .add("--width", width, "of both hidden layers", {1, 4096})
      .add("--noise", noise, "standard deviation of the points", {0, 1})
      .add("--lr", lr, "learning rate at the start; it falls to zero by a cosine", {0, 100})
      .add("--seed", seed, "of points, weights and order")
      .output("--chart", picture, "picture of loss and accuracy (SVG)")
      .reaches("test accuracy >= 95");
  if (auto code = flags.parse(argc, argv)) return *code;

  return tools::run_main("spirals", [&] {
    flags.check_outputs();
    Generator random(seed);
    const data::Dataset train = spirals(points, arms, noise, random),
                        test = spirals(600, arms, noise, random);
    nn::Sequential model(nn::Linear(2, width), nn::ReLU(), nn::Linear(width, width), nn::ReLU(),
                         nn::Linear(width, arms));
    model.reset(random);
    optim::AdamW optimizer(model.parameters(), {.lr = lr});
    data::Loader loader(train, {.batch_size = 50, .seed = seed});
    const int64_t steps = epochs * loader.batches();
    tools::Series losses{.name = "training loss", .smooth = 8};
    tools::Series accuracies{.name = "test accuracy", .right = true};
    tools::Progress bar({.total = steps});
    int64_t done = 0;
    for (int64_t epoch = 0; epoch < epochs; ++epoch) {
      bar.set_label("epoch " + std::to_string(epoch + 1) + "/" + std::to_string(epochs));
      for (auto [x, y, index] : loader.epoch(epoch)) {
        const double part = static_cast<double>(done) / static_cast<double>(steps);
        optimizer.set_lr(0.5 * lr * (1 + std::cos(std::numbers::pi * part)));
        optimizer.zero_grad();
        Tensor loss = cross_entropy(model(x), y);
        autograd::backward(loss);
        optimizer.step();
        losses.x.push_back(static_cast<double>(++done)), losses.y.push_back(loss.item());
        bar.update(done, {{"loss", loss.item()}}, x.size(0));
      }
      accuracies.x.push_back(static_cast<double>(done)), accuracies.y.push_back(accuracy(model, test));
    }
    bar.finish();
    std::printf("test accuracy %.2f %% after %lld steps; picture: %s\n", 100 * accuracies.y.back(),
                static_cast<long long>(done), picture.c_str());
    tools::write_chart(picture, {"Spirals", "step", "loss", "test accuracy", {losses, accuracies}});
  });
}
