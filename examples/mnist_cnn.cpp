// A convolutional network learns handwritten digits in one process: the t10k file of MNIST, or drawn digits.
#include <cstdio>

#include "data/digits.h"
#include "data/idx.h"
#include "tools/draw/chart.h"
#include "tools/flags/flags.h"
#include "tools/flags/progress.h"
#include "troupe/troupe.h"
using namespace troupe;

// 28 x 28 pixels -> 10 classes.
nn::Sequential network(Generator& random) {
  nn::Sequential net(nn::Conv2d(1, 16, 3, {.padding = {1, 1}}), nn::BatchNorm2d(16), nn::ReLU(),
                     nn::MaxPool2d(2), nn::Conv2d(16, 32, 3, {.padding = {1, 1}}), nn::BatchNorm2d(32),
                     nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(), nn::Dropout(0.25), nn::Linear(32 * 49, 128),
                     nn::ReLU(), nn::Linear(128, 10));
  net.reset(random);
  return net;
}

Tensor images(const Tensor& x) { return x.reshape({-1, 1, 28, 28}); }

double accuracy(nn::Sequential& net, const data::Dataset& test) {
  NoGradGuard no_grad;
  net.eval();
  double right = 0;
  for (auto [x, y, index] : data::Loader(test, {.batch_size = 250, .shuffle = false}).epoch(0))
    right += eq(net(images(x)).argmax(1), y).to(float32).sum().item();
  net.train();
  return right / static_cast<double>(test.size());
}

int main(int argc, char** argv) {
  std::string dir, picture = "mnist_cnn.svg";
  int64_t epochs = 4, batch = 50;
  uint64_t seed = 0;
  double lr = 2e-3;
  tools::Flags flags("mnist_cnn", "Trains a convolutional network on handwritten digits.");
  flags.add("--data", dir, "folder with MNIST's IDX files, gzipped or not; without it, digits are drawn")
      .add("--epochs", epochs, "passes over the training set", {1, 1e6})
      .add("--batch", batch, "samples per step", {2, 1e6})
      .add("--lr", lr, "highest learning rate, of one cycle", {0, 100})
      .add("--seed", seed, "of weights, order and drawn digits")
      .output("--chart", picture, "picture of loss and accuracy (SVG)")
      .reaches("test accuracy >= 99", "on drawn digits");
  if (auto code = flags.parse(argc, argv)) return *code;

  return tools::run_main("mnist_cnn", [&] {
    flags.check_outputs();
    const data::Split set = dir.empty() ? data::generated_split(seed) : data::mnist_split(dir);
    Generator random(seed);
    nn::Sequential net = network(random);
    std::fputs(nn::summary(net, Shape{batch, 1, 28, 28}).c_str(), stdout);
    optim::AdamW optimizer(net.parameters(), {.lr = lr, .weight_decay = 0.01});
    data::Loader loader(set.train, {.batch_size = batch, .seed = seed, .drop_last = true});
    const int64_t steps = epochs * loader.batches();
    optim::Scheduler rate(optimizer, optim::one_cycle(steps));
    tools::Series losses{.name = "training loss", .smooth = 8};
    tools::Series accuracies{.name = "test accuracy", .right = true};
    tools::Progress bar({.total = steps});
    int64_t done = 0;
    for (int64_t epoch = 0; epoch < epochs; ++epoch) {
      bar.set_label("epoch " + std::to_string(epoch + 1) + "/" + std::to_string(epochs));
      for (auto [x, y, index] : loader.epoch(epoch)) {
        optimizer.zero_grad();
        Tensor loss = cross_entropy(net(images(x)), y);
        autograd::backward(loss);
        optimizer.step();
        rate.step();
        losses.x.push_back(static_cast<double>(++done)), losses.y.push_back(loss.item());
        bar.update(done, {{"loss", loss.item()}}, x.size(0));
      }
      accuracies.x.push_back(static_cast<double>(done)), accuracies.y.push_back(accuracy(net, set.test));
    }
    bar.finish();
    std::printf("test accuracy %.2f %% after %lld steps; picture: %s\n", 100 * accuracies.y.back(),
                static_cast<long long>(done), picture.c_str());
    tools::write_chart(picture,
                       {"Digits, convolutional", "step", "loss", "test accuracy", {losses, accuracies}});
  });
}
