// Digits, learnt by replicas of one model, each with its rows of every batch: alone (`data_parallel`), or
// `troupe run -n 4 data_parallel`. The same losses, up to rounding, on any number of workers.
#include <troupe/data.h>
#include <troupe/replicas.h>
#include <troupe/tools/program.h>
#include <troupe/troupe.h>
using namespace troupe;
using parallel::split;

struct Layers : nn::Layer {
  nn::Linear hidden{784, 128}, out{128, 10};
  Tensor forward(const Tensor& x) override { return out(relu(hidden(x))); }
  void members(nn::Members& m) override { m("hidden", hidden), m("out", out); }
};

struct Net : nn::ModuleActor<Layers> {
  Tensor forward(Tensor x) { return net(x); }
  Tensor loss(Tensor x, Tensor y) { return cross_entropy(net(x), y); }
  static constexpr auto remote = methods<&Net::forward, &Net::loss>;
};

int main(int argc, char** argv) {
  tools::Flags flags("data_parallel", "Trains a digit classifier on replicas, one on each worker.");
  auto& epochs = flags.whole("--epochs", 8, "passes over the training set", {1, 1e6});
  auto& batch = flags.whole("--batch", 64, "samples per step, of all replicas together", {1, 1e6});
  auto& lr = flags.number("--lr", 1e-3, "learning rate of Adam", {0, 100});
  auto& seed = flags.seed("of order and drawn digits");
  auto& picture = flags.picture("--chart", "data_parallel.svg", "picture of loss and accuracy (SVG)");
  auto& saved = flags.checkpoints();
  if (auto code = flags.reaches("test accuracy >= 97").parse(argc, argv)) return *code;

  const auto train = [&](Cluster& cluster) {
    flags.check_outputs();
    const auto names = cluster.workers();
    const datasets::Split set = datasets::generated_split(seed);
    datasets::Loader loader(set.train, {.batch_size = batch, .seed = seed});
    const Group group(cluster, {names.begin(), names.end()});
    parallel::DataParallel<Net> net(cluster.here(), group);
    optim::Distributed<optim::Adam> optimizer(net, {.lr = lr});
    tools::Training training(picture, "Digits on " + std::to_string(net.size()) + " replicas",
                             epochs * loader.batches(), {.epochs = epochs, .measure = "test accuracy"});
    Job job(cluster);
    for (auto [x, y, epoch, last] : job.batches(loader, epochs)) {
      double loss = 0;
      job.attempt([&, x = x, y = y] {  // with --elastic: made again if a worker is lost in it
        autograd::Context step(cluster);
        const Tensor mean = net.mean<&Net::loss>(split(x), split(y)).get();
        step.backward(mean);  // each replica has the gradients of the whole batch now
        optimizer.step(step);
        loss = mean.item();
      });
      training.step(loss, x.size(0));
      if (!last) continue;
      job.attempt([&] {
        training.measure(datasets::accuracy(set.test, [&](const Tensor& x) { return net(x).get(); }));
      });
    }
    training.finish("test accuracy %.2f %%, by %ld replicas", 100 * training.measured(), long(net.size()));
  };
  return launch(train, {.checkpoints = saved});
}
