// A convolutional network learns handwritten digits in one process: the t10k file of MNIST, or drawn digits.
#include <troupe/data.h>
#include <troupe/tools/program.h>
#include <troupe/troupe.h>
using namespace troupe;

int main(int argc, char** argv) {
  tools::Flags flags("mnist_cnn", "Trains a convolutional network on handwritten digits.");
  auto& dir =
      flags.text("--data", "", "folder of MNIST's IDX files, maybe gzipped; without it, digits are drawn");
  auto& epochs = flags.whole("--epochs", 4, "passes over the training set", {1, 1e6});
  auto& batch = flags.whole("--batch", 50, "samples per step", {2, 1e6});
  auto& lr = flags.number("--lr", 2e-3, "highest learning rate, of one cycle", {0, 100});
  auto& seed = flags.seed("of weights, order and drawn digits");
  auto& picture = flags.picture("--chart", "mnist_cnn.svg", "picture of loss and accuracy (SVG)");
  auto& saved = flags.checkpoints();
  if (auto code = flags.reaches("test accuracy >= 99", "on drawn digits").parse(argc, argv)) return *code;

  return tools::run_main(flags, [&] {
    datasets::Split set = dir.empty() ? datasets::generated_split(seed) : datasets::mnist_split(dir);
    for (Tensor* x : {&set.train.x, &set.test.x}) *x = x->reshape({-1, 1, 28, 28});
    Generator random(seed);
    nn::Sequential net(  // 28 x 28 pixels -> 10 classes
        nn::Conv2d(1, 16, 3, {.padding = {1, 1}}), nn::BatchNorm2d(16), nn::ReLU(), nn::MaxPool2d(2),
        nn::Conv2d(16, 32, 3, {.padding = {1, 1}}), nn::BatchNorm2d(32), nn::ReLU(), nn::MaxPool2d(2),
        nn::Flatten(), nn::Dropout(0.25), nn::Linear(32 * 49, 128), nn::ReLU(), nn::Linear(128, 10));
    net.reset(random);
    std::fputs(nn::summary(net, Shape{batch, 1, 28, 28}).c_str(), stdout);
    datasets::Loader loader(set.train, {.batch_size = batch, .seed = seed, .drop_last = true});
    const int64_t steps = epochs * loader.batches();
    optim::AdamW optimizer(net.parameters(), {.lr = lr, .weight_decay = 0.01});
    optim::Scheduler rate(optimizer, optim::one_cycle(steps));
    tools::Training training(picture, "Digits, convolutional", steps,
                             {.epochs = epochs, .measure = "test accuracy"});
    Job job(saved);
    for (auto [x, y, epoch, last] : job.batches(loader, epochs)) {
      optimizer.zero_grad();
      Tensor loss = cross_entropy(net(x), y);
      autograd::backward(loss);
      optimizer.step(), rate.step();
      training.step(loss.item(), x.size(0));
      if (!last) continue;
      net.eval();  // without dropout, and with the means of all batches
      training.measure(datasets::accuracy(set.test, std::ref(net)));
      net.train();
    }
    training.finish("test accuracy %.2f %% after %ld steps", 100 * training.measured(), steps);
  });
}
