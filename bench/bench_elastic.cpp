// A job whose workers may be lost, for bench/restarts.py: replicas of a perceptron whose state has so many MiB, on all
// workers but the driver's. Writes the number of each step that stands into a file. HOW is a Shard, with spare pieces, or
// "checkpoint": without attempts, so that the job goes back to its newest checkpoint.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "troupe/replicas.h"
#include "troupe/troupe.h"

using namespace troupe;
using parallel::split;

namespace {

constexpr int64_t kLayers = 4;
constexpr double kPerParameter = 12;  // bytes of a value and Adam's two

int64_t width_of(double mib) {
  return std::max<int64_t>(8, static_cast<int64_t>(std::sqrt(mib * 1024 * 1024 / kPerParameter / kLayers)));
}

struct Wide : nn::ModuleActor<nn::Sequential> {
  explicit Wide(int64_t width) {
    for (int64_t l = 0; l < kLayers; ++l) net.add(nn::Linear(width, width)).add(nn::Tanh());
  }
  Tensor loss(Tensor x) { return mean(square(net(x))); }
  static constexpr auto remote = methods<&Wide::loss>;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "Usage: bench_elastic MIB STEPS FILE HOW\n");
    return 2;
  }
  const int64_t width = width_of(std::stod(argv[1])), steps = std::stoll(argv[2]);
  const std::string file = argv[3], how = argv[4];
  const bool goes_back = how == "checkpoint";
  const parallel::DataParallelOptions options{.shard = parallel::shard_named(goes_back ? "none" : how), .spare_pieces = 1};
  const auto train = [&](Cluster& cluster) {
    const auto workers = cluster.workers();
    parallel::DataParallel<Wide> net(cluster.here(), Group(cluster, {workers.begin() + 1, workers.end()}), options, width);
    optim::Distributed<optim::Adam> optimizer(net, {.lr = 1e-4});
    const int progress = ::open(file.c_str(), O_WRONLY | O_CREAT, 0666);
    Job job(cluster);
    for (const int64_t step : job.steps(steps)) {
      const auto make = [&] {
        autograd::Context context(cluster);
        context.backward(net.mean<&Wide::loss>(split(ones({24, width}))).get());
        optimizer.step(context);
      };
      goes_back ? make() : job.attempt(make);
      const std::string text = std::to_string(step) + "\n";
      if (::pwrite(progress, text.data(), text.size(), 0) < 0) std::perror("bench_elastic");
    }
    ::close(progress);
  };
  if (!goes_back) return launch(train);
  return launch(train, {.checkpoints = {.dir = file + ".checkpoints", .resume = true, .every = 5}});
}
