// Learns y = sin(3x) with a model whose two halves live on two workers; the loss ends below 0.001.
#include <cstdio>

#include <troupe/tools/flags/flags.h>
#include <troupe/troupe.h>
using namespace troupe;

struct Half : Actor {  // a shard: state and methods, one message at a time; parameters are found
  Half(int64_t in, int64_t out, bool squash) : fc(in, out), squash(squash) {}
  Tensor forward(Tensor x) { return squash ? tanh(fc(x)) : fc(x); }  // [batch, in] -> [batch, out]
  nn::Linear fc;
  bool squash;
  static constexpr auto remote = methods<&Half::forward>;  // what others may call
};

int main(int argc, char** argv) {
  tools::Flags flags("quickstart", "Learns y = sin(3x) with a model whose two halves live on two workers.");
  if (auto code = flags.parse(argc, argv)) return *code;  // --help, and flags that it does not know

  return launch([](Cluster& cluster) {                // alone: three workers in this process
    auto a = cluster.spawn<Half>("w1", 1, 32, true);  // RRef<Half>; does not wait
    auto b = cluster.spawn<Half>("w2", 32, 1, false);
    optim::Distributed<optim::Adam> optimizer({a, b}, {.lr = 0.01});  // updates run where the parameters live

    for (int i = 0; i <= 1000; ++i) {
      Tensor x = ops::rand({64, 1}), y = sin(3.0 * x);
      autograd::Context step(cluster);           // gradients of this step; freed everywhere at its end
      Tensor loss = mse_loss(b(a(x)).get(), y);  // one wait for both calls
      step.backward(loss);                       // crosses both workers
      optimizer.step(step);
      if (i % 250 == 0) std::printf("step %4d  loss %.5f\n", i, loss.item());
    }
  });
}
