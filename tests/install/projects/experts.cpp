// A mixture of experts: a gate here, four experts over two workers, each with the rows that the gate gives
// it. Learns a function that is another one in each quarter of its range.
#include <troupe/troupe.h>

#include <cstdio>
#include <vector>

using namespace troupe;

namespace {

constexpr int64_t kExperts = 4, kBatch = 128;

struct Expert : Actor {
  Expert(int64_t in, int64_t hidden = 16) : first(in, hidden), second(hidden, 1) {}
  Tensor forward(Tensor x) { return second(tanh(first(x))); }  // [rows, in] -> [rows, 1]
  nn::Linear first, second;
  static constexpr auto remote = methods<&Expert::forward>;
};

struct Gate : Actor {
  Gate() : net(1, kExperts) {}
  Tensor forward(Tensor x) { return softmax(net(x) * 4.0, 1); }  // [rows, 1] -> [rows, experts]
  nn::Linear net;
  static constexpr auto remote = methods<&Gate::forward>;
};

Tensor target(const Tensor& x) { return where(gt(x, 0), sin(6.0 * x), x * -1.0); }

// Each expert computes all rows; the gate weighs what they say.
Tensor mixture(const std::vector<RRef<Expert>>& experts, const Tensor& x, const Tensor& weights) {
  std::vector<Future<Tensor>> answers;
  for (const auto& expert : experts) answers.push_back(expert(x));
  Tensor sum;
  for (size_t i = 0; i < experts.size(); ++i) {
    const Tensor part = answers[i].get() * weights.slice(1, int64_t(i), int64_t(i) + 1);
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

}  // namespace

int main() {
  return launch([](Cluster& cluster) {
    manual_seed(1);
    const auto gate = cluster.spawn<Gate>("w0");
    std::vector<RRef<Expert>> experts;
    for (int64_t i = 0; i < kExperts; ++i) experts.push_back(cluster.spawn<Expert>(i % 2 ? "w1" : "w2", 1));
    std::vector<AnyRef> trained(experts.begin(), experts.end());
    trained.push_back(gate);
    optim::Distributed<optim::Adam> optimizer(trained, {.lr = 0.02});
    for (int i = 0; i <= 300; ++i) {
      const Tensor x = ops::rand({kBatch, 1}) * 2.0 - 1.0;
      autograd::Context step(cluster);
      const Tensor loss = mse_loss(mixture(experts, x, gate(x).get()), target(x));
      step.backward(loss);
      optimizer.step(step);
      if (i % 100 == 0) std::printf("step %d loss %.9f\n", i, loss.item());
    }
  });
}
