// A Sequential cut into stages: where, and that it stays the same model.
#include "parallel/pipeline/split.h"

#include "tests/parallel/stages.h"

using namespace troupe;
using namespace troupe::testing;
using namespace troupe::parallel;
using Cuts = std::vector<size_t>;

namespace {

struct Net {
  static nn::Sequential make() {
    return nn::Sequential{Dense(0), nn::ReLU(), Dense(1), nn::Tanh(), Dense(2), Dense(3)};
  }
  static Tensor loss(const Tensor& output, const Tensor& target) { return mse_loss(output, target); }
};

// Multiplies by itself again and again.
struct Slow : nn::Layer {
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (int i = 0; i < 300; ++i) y = mul(y, 0.999);
    return y;
  }
};

}  // namespace

TEST_CASE("balanced cuts make the largest stage as small as can be") {
  CHECK(balance({1, 1, 1, 1}, 2) == Cuts{2});
  CHECK(balance({5, 1, 1, 1, 1, 1}, 2) == Cuts{1});
  CHECK(balance({1, 2, 3, 4, 5, 6, 7, 8, 9}, 3) == Cuts{5, 7});
  CHECK(balance({0, 0, 7}, 3) == Cuts{1, 2});
  CHECK(balance({3, 4}, 1) == Cuts{});
  // Against all ways to cut, for a few costs.
  const std::vector<double> costs{3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
  const auto largest = [&](const Cuts& cuts) {
    double most = 0;
    const auto at = borders(costs.size(), cuts);
    for (size_t s = 0; s + 1 < at.size(); ++s) {
      double sum = 0;
      for (size_t i = at[s]; i < at[s + 1]; ++i) sum += costs[i];
      most = std::max(most, sum);
    }
    return most;
  };
  for (const int stages : {2, 3, 4}) {
    double best = 1e9;
    for (unsigned mask = 0; mask < 1u << (costs.size() - 1); ++mask) {
      Cuts cuts;
      for (size_t i = 0; i + 1 < costs.size(); ++i)
        if (mask >> i & 1) cuts.push_back(i + 1);
      if (cuts.size() == size_t(stages - 1)) best = std::min(best, largest(cuts));
    }
    const Cuts cuts = balance(costs, stages);
    CHECK(cuts.size() == size_t(stages - 1));
    CHECK(largest(cuts) == best);
  }
}

TEST_CASE("layers are balanced by their bytes, or by the time that they take") {
  nn::Sequential wide(nn::Linear(4, 4), nn::Linear(4, 4), nn::Linear(4, 100), nn::Linear(100, 4), nn::ReLU());
  CHECK(balance_by_size(wide, 2) == Cuts{3});
  nn::Sequential slow{Dense(0), Dense(1), Dense(2), Slow()};
  CHECK(balance_by_time(slow, wave({8, kWidth}, 0), 2) == Cuts{3});
  for (const auto& [name, p] : slow.named_parameters()) CHECK_FALSE(p.grad().defined());
}

TEST_CASE("cuts that leave a stage empty are refused") {
  const auto text = [](size_t layers, const Cuts& cuts) {
    return invalid_text([&] { (void)borders(layers, cuts); });
  };
  CHECK(text(4, {0}).find("cut before layer 0 of 4 leaves a stage without layers") != std::string::npos);
  CHECK(text(4, {2, 2}).find("layer 2 of 4") != std::string::npos);
  CHECK(text(4, {4}).find("layer 4 of 4") != std::string::npos);
  CHECK(text(0, {}) == "[pipeline] the model has no layers");
  CHECK(invalid_text([] { (void)balance({1, 2}, 3); }).find("3 stages of 2 layers") != std::string::npos);
  CHECK(invalid_text([] { (void)balance({1, 2}, 0); }).find("0 stages") != std::string::npos);
}

TEST_CASE("a Sequential that was split is trained as the whole") {
  const Tensor x = wave({6, kWidth}, 1), y = wave({6, kWidth}, 2);
  for (const Cuts& cuts : {Cuts{}, Cuts{2}, Cuts{1, 2, 4}}) {
    nn::Sequential whole = Net::make();
    for (size_t i = 0; i < whole.size(); ++i)  // other values than those of make()
      for (const auto& [name, p] : whole[i].named_parameters())
        p.detach().copy_(mul(p, 0.5 + double(i)).detach());
    const auto cluster = Cluster::in_process(3, hosting<StageModule<Net>>());
    const auto stages = split<Net>(cluster->here(), {"w1", "w2"}, cuts);
    REQUIRE(stages.size() == cuts.size() + 1);
    load(stages, whole, cuts).get();
    Pipeline pipeline(cluster->here(), stages, {.schedule = "zb-h1", .micro_batches = 3});
    optim::Distributed<optim::Adam> remote(actors_of(stages), {.lr = 0.1});
    optim::Adam local(whole.parameters(), {.lr = 0.1});
    for (int step = 0; step < 4; ++step) {
      autograd::Context context(*cluster);
      const double got = pipeline.step(Value(x), Value(y)).loss;
      remote.step(context);
      local.zero_grad();
      const Tensor loss = mse_loss(whole(x), y);
      autograd::backward(loss);
      local.step();
      INFO("step " << step);
      CHECK(got == Approx(loss.item()).epsilon(1e-4));
    }
  }
}
