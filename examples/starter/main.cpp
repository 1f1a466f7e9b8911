#include <troupe/troupe.h>
using namespace troupe;

struct Half : Actor {  // a part of the model
  Half(int64_t in, int64_t out) : fc(in, out) {}
  Tensor forward(Tensor x) { return tanh(fc(x)); }
  nn::Linear fc;
  static constexpr auto remote = methods<&Half::forward>;  // what others may call
};

void train(Cluster& cluster) {
  auto a = cluster.spawn<Half>("w1", 1, 32), b = cluster.spawn<Half>("w2", 32, 1);
  optim::Distributed<optim::Adam> optimizer({a, b}, {.lr = 0.01});
  for (int i = 0; i <= 1000; ++i) {
    autograd::Context step(cluster);  // holds the gradients of this step
    Tensor x = ops::rand({64, 1}), loss = mse_loss(b(a(x)).get(), sin(x));
    step.backward(loss);
    optimizer.step(step);
    if (i % 250 == 0) std::printf("step %4d  loss %.5f\n", i, loss.item());
  }
}

int main() { return launch(train); }
