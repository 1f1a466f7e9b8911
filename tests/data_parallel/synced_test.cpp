// Replicas that add up what they have seen, as batch norm over all of them does.
#include <catch2/catch.hpp>

#include <cmath>

#include "parallel/tensor/convert.h"
#include "tests/data_parallel/parts.h"
#include "tests/support/error_of.h"
#include "tests/support/nothing_left.h"
#include "troupe/replicas.h"

using namespace troupe;
using namespace troupe::parallel;
using Catch::Contains;
using testing::error_of;
using testing::nothing_left;
using testing::wave;

namespace {

// How far rows are from the mean of all rows, of `sums`: that of the rows, and their number.
Tensor spread(const Tensor& y, const Tensor& sums) {
  const Tensor mean = ops::div(ops::slice(sums, 0, 0, 3), ops::slice(sums, 0, 3, 4));
  return ops::div(ops::sum(ops::square(ops::sub(y, mean))), std::max<double>(double(y.size(0)), 1));
}
Tensor sums_of(const Tensor& y) {
  return ops::cat({ops::sum(y, {0}), full({1}, double(y.size(0)), float64)}, 0);
}

struct Synced : Actor {
  explicit Synced(Group group)
      : group(std::move(group)),
        w(wave({3, 5}, 1, float64).requires_grad_()),
        b(wave({3}, 2, float64).requires_grad_()) {}
  Task<Tensor> loss(Tensor x) {
    const Tensor y = ops::square(ops::linear(x, w, b));
    const Tensor sums = co_await tp::sum(sums_of(y), group);
    co_return spread(y, tp::enter(sums, group));
  }
  Tensors parameters() override { return {w, b}; }
  Tensors gradients() { return {autograd::context_gradient(w), autograd::context_gradient(b)}; }
  Group group;
  Tensor w, b;
  static constexpr auto remote = methods<&Synced::loss, &Synced::gradients>;
};

}  // namespace

TEST_CASE("replicas that sum statistics compute what one process does, and one without rows is named at once") {
  const auto cluster = Cluster::in_process(3, hosting<Synced>());
  const std::vector<Place> workers{0, 1, 2}, backwards{2, 1, 0};
  for (const Shard shard : {Shard::none, Shard::state, Shard::gradients}) {
    INFO(word(shard));
    DataParallel<Synced> net(cluster->here(), Group(*cluster, workers), DataParallelOptions{.shard = shard},
                             Group(*cluster, backwards, word(shard)));
    optim::Distributed<optim::SGD> optimizer(net, {.lr = 0.0});
    for (const int64_t rows : {7, 2, 3, 1, 6}) {
      CAPTURE(rows);
      const Tensor x = wave({rows, 5}, double(rows), float64);
      if (rows < 3) {
        for (const bool in_context : {false, true}) {
          std::optional<autograd::Context> step;
          if (in_context) step.emplace(*cluster);
          const Error e = error_of([&] { net.mean<&Synced::loss>(split(x)).get(); });
          CHECK(e.kind() == ErrorKind::invalid);
          CHECK_THAT(e.what(), Contains("[sum] rank ") && Contains("has no part in this call") &&
                                   Contains("give each replica a row"));
        }
        continue;
      }
      const Tensor w = wave({3, 5}, 1, float64).requires_grad_(), b = wave({3}, 2, float64).requires_grad_();
      const Tensor y = ops::square(ops::linear(x, w, b));
      const Tensor right = spread(y, sums_of(y));
      autograd::backward(right);
      autograd::Context step(*cluster);
      const Tensor loss = net.mean<&Synced::loss>(split(x)).get();
      CHECK(loss.item() == Approx(right.item()).epsilon(1e-12));
      step.backward(loss);
      const double norm =
          std::sqrt(ops::sum(ops::square(w.grad())).item() + ops::sum(ops::square(b.grad())).item());
      CHECK(optimizer.clip_grad_norm(step, 1e9) == Approx(norm).epsilon(1e-10));
      optimizer.step(step);
    }
  }
  nothing_left(*cluster);
}
