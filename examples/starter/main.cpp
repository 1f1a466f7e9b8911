// Learns y = sin(3x) with a model whose two halves live on two workers. Runs alone (three workers in this
// process), or over processes: troupe run -n 3 ./starter
#include <troupe/troupe.h>

#include <cstdio>

using namespace troupe;

struct Half : Actor {  // a shard: state and methods, one message at a time
  Half(int64_t in, int64_t out, bool squash = false) : fc(in, out), squash(squash) {}
  Tensor forward(Tensor x) { return squash ? tanh(fc(x)) : fc(x); }  // [batch, in] -> [batch, out]
  nn::Linear fc;
  bool squash;
  static constexpr auto remote = methods<&Half::forward>;  // what may be called from other workers
};

int main() {
  return launch([](Cluster& cluster) {
    manual_seed(0);
    auto a = cluster.spawn<Half>("w1", 1, 32, true), b = cluster.spawn<Half>("w2", 32, 1);
    optim::Distributed<optim::Adam> optimizer({a, b}, {.lr = 0.01});
    for (int i = 0; i <= 1000; ++i) {
      Tensor x = ops::rand({64, 1}), y = sin(3.0 * x);
      autograd::Context step(cluster);  // the gradients of this step
      Tensor loss = mse_loss(b(a(x)).get(), y);
      step.backward(loss);
      optimizer.step(step);
      if (i % 250 == 0) std::printf("step %4d  loss %.5f\n", i, loss.item());
    }
  });
}
