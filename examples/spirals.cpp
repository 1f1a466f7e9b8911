// Three arms of a spiral, told apart by a small perceptron; no files, no cluster.
#include <troupe/tools/program.h>
#include <troupe/troupe.h>
using namespace troupe;

// Points of `arms` arms, noisy: x [count, 2], y [count], the arm.
datasets::Dataset spirals(int64_t count, int64_t arms, double noise, Generator& random) {
  std::vector<float> points;
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < count; ++i) {
    labels.push_back(i % arms);
    const double radius = random.uniform(), turn = static_cast<double>(i % arms) / static_cast<double>(arms);
    const double angle = 4 * radius + 2 * std::numbers::pi * turn;
    points.push_back(static_cast<float>(radius * std::sin(angle) + noise * random.normal()));
    points.push_back(static_cast<float>(radius * std::cos(angle) + noise * random.normal()));
  }
  return {tensor(points).reshape({count, 2}), tensor(labels)};
}

int main(int argc, char** argv) {
  tools::Flags flags("spirals", "Tells the arms of a spiral apart (2-width-width-arms, ReLU, AdamW).");
  auto& epochs = flags.whole("--epochs", 60, "passes over the training set", {1, 1e6});
  auto& points = flags.whole("--points", 1500, "points to learn from", {10, 1e7});
  auto& arms = flags.whole("--arms", 3, "arms of the spiral", {2, 10});
  auto& width = flags.whole("--width", 64, "of both hidden layers", {1, 4096});
  auto& noise = flags.number("--noise", 0.02, "standard deviation of the points", {0, 1});
  auto& lr = flags.number("--lr", 0.01, "learning rate at the start; it falls to zero by a cosine", {0, 100});
  auto& seed = flags.seed("of points, weights and order");
  auto& picture = flags.picture("--chart", "spirals.svg", "picture of loss and accuracy (SVG)");
  auto& saved = flags.checkpoints();
  if (auto code = flags.reaches("test accuracy >= 95").parse(argc, argv)) return *code;

  return tools::run_main(flags, [&] {
    Generator random(seed);
    const datasets::Dataset train = spirals(points, arms, noise, random),
                            test = spirals(600, arms, noise, random);
    nn::Sequential model(nn::Linear(2, width), nn::ReLU(), nn::Linear(width, width), nn::ReLU(),
                         nn::Linear(width, arms));
    model.reset(random);
    datasets::Loader loader(train, {.batch_size = 50, .seed = seed});
    const int64_t steps = epochs * loader.batches();
    optim::AdamW optimizer(model.parameters(), {.lr = lr});
    optim::Scheduler rate(optimizer, optim::cosine(steps));
    tools::Training training(picture, "Spirals", steps, {.epochs = epochs, .measure = "test accuracy"});
    Job job(saved);
    for (auto [x, y, epoch, last] : job.batches(loader, epochs)) {
      optimizer.zero_grad();
      Tensor loss = cross_entropy(model(x), y);
      autograd::backward(loss);
      optimizer.step(), rate.step();
      training.step(loss.item(), x.size(0));
      if (last) training.measure(datasets::accuracy(test, std::ref(model)));
    }
    training.finish("test accuracy %.2f %% after %ld steps", 100 * training.measured(), steps);
  });
}
