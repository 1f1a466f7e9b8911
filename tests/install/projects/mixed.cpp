// One parameter server and two pipelines at once: the first stage of each pulls its weights from the server,
// whose update is the mean of what both push; the second stage has an optimizer of its own.
#include <troupe/parallel/pipeline/pipeline.h>
#include <troupe/parallel/server/served_parameters.h>
#include <troupe/troupe.h>

#include <cstdio>
#include <deque>
#include <vector>

using namespace troupe;
using namespace troupe::parallel;

namespace {

struct Bottom : Actor {
  explicit Bottom(Served served) : client(std::move(served)) {}
  Task<Tensor> forward(Tensor x) {  // [rows, 1] -> [rows, 16]
    const auto values = client.pull();
    const Tensors w = co_await values;
    co_return tanh(matmul(x, w[0]) + w[1]);
  }
  Task<void> push() {
    const auto pushed = client.push_context();
    (void)co_await pushed;
  }
  Client client;
  static constexpr auto remote = methods<&Bottom::forward, &Bottom::push>;
};

struct Top : Actor {
  explicit Top(int64_t width = 16) : out(width, 1) {}
  Tensor forward(Tensor x) { return out(x); }
  Tensor loss(Tensor guess, Tensor y) { return mse_loss(guess, y); }
  nn::Linear out;
  static constexpr auto remote = methods<&Top::forward, &Top::loss>;
};

}  // namespace

int main() {
  return launch([](Cluster& cluster) {
    manual_seed(2);
    const Served served = serve(cluster.here(), {"w1"}, {ops::randn({1, 16}), zeros({16})},
                                {.optimizer = "adam", .options = {{"lr", 0.02}}, .trainers = 2});
    std::vector<RRef<Bottom>> bottoms;
    std::vector<RRef<Top>> tops;
    std::deque<Pipeline> pipelines;
    for (const char* worker : {"w1", "w2"}) {
      bottoms.push_back(cluster.spawn<Bottom>(worker, served));
      tops.push_back(cluster.spawn<Top>(worker));
      pipelines.emplace_back(cluster.here(),
                             std::vector{stage<&Bottom::forward>(bottoms.back()),
                                         stage<&Top::forward>(tops.back()).with_loss<&Top::loss>()},
                             PipelineOptions{.micro_batches = 1});
    }
    optim::Distributed<optim::Adam> optimizer({tops[0], tops[1]}, {.lr = 0.02});
    for (int i = 0; i <= 200; ++i) {
      autograd::Context step(cluster);
      std::vector<Future<StepResult>> passes;
      for (Pipeline& pipeline : pipelines) {
        const Tensor x = ops::rand({32, 1});
        passes.push_back(pipeline.step_async(Value(x), Value(sin(3.0 * x))));
      }
      const auto results = all(passes).get();
      const std::vector pushes{bottoms[0].call<&Bottom::push>(), bottoms[1].call<&Bottom::push>()};
      all(pushes).get();
      optimizer.step(step);
      if (i % 50 == 0) std::printf("step %d loss %.9f %.9f\n", i, results[0].loss, results[1].loss);
    }
  });
}
