// What the drawn digits are for: a network with a hidden layer learns them better than a linear one can.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <vector>

#include "core/base/generator.h"
#include "data/datasets/digits.h"
#include "data/datasets/loader.h"

using namespace troupe;

namespace {

// A ReLU network with softmax and plain SGD in loops of its own, so that this test depends on the data alone.
class Network {
 public:
  explicit Network(std::vector<size_t> sizes) : sizes_(std::move(sizes)) {
    Generator random(1);
    for (size_t l = 0; l + 1 < sizes_.size(); ++l) {
      weights_.emplace_back(sizes_[l] * sizes_[l + 1]);
      biases_.emplace_back(sizes_[l + 1]);
      const double bound = std::sqrt((l + 2 < sizes_.size() ? 6.0 : 1.0) / static_cast<double>(sizes_[l]));
      for (float& w : weights_.back()) w = static_cast<float>(random.uniform(-bound, bound));
    }
  }

  int64_t classify(const float* x) {
    forward(x);
    return std::max_element(values_.back().begin(), values_.back().end()) - values_.back().begin();
  }

  void learn(const datasets::Batch& batch, float rate) {
    auto dw = weights_, db = biases_;
    for (auto* all : {&dw, &db})
      for (auto& v : *all) std::fill(v.begin(), v.end(), 0.0f);
    const int64_t n = batch.y.size(0), width = batch.x.size(1);
    for (int64_t i = 0; i < n; ++i) {
      forward(batch.x.data<float>() + i * width);
      std::vector<float> delta = softmax(values_.back());
      delta[static_cast<size_t>(batch.y.data<int64_t>()[i])] -= 1;
      for (size_t l = weights_.size(); l-- > 0;) {
        const std::vector<float>& in = values_[l];
        std::vector<float> before(in.size(), 0.0f);
        for (size_t o = 0; o < delta.size(); ++o) {
          const float d = delta[o];
          if (d == 0) continue;
          db[l][o] += d;
          float* to = dw[l].data() + o * in.size();
          for (size_t k = 0; k < in.size(); ++k) to[k] += d * in[k];
          if (l == 0) continue;
          const float* w = weights_[l].data() + o * in.size();
          for (size_t k = 0; k < in.size(); ++k) before[k] += d * w[k];
        }
        for (size_t k = 0; k < in.size(); ++k) before[k] = in[k] > 0 ? before[k] : 0;
        delta = before;
      }
    }
    for (size_t l = 0; l < weights_.size(); ++l) {
      for (size_t k = 0; k < dw[l].size(); ++k) weights_[l][k] -= rate / static_cast<float>(n) * dw[l][k];
      for (size_t k = 0; k < db[l].size(); ++k) biases_[l][k] -= rate / static_cast<float>(n) * db[l][k];
    }
  }

 private:
  void forward(const float* x) {
    values_.assign(1, std::vector<float>(x, x + sizes_[0]));
    for (size_t l = 0; l < weights_.size(); ++l) {
      std::vector<float> out = biases_[l];
      const std::vector<float>& in = values_.back();
      for (size_t o = 0; o < out.size(); ++o) {
        float lanes[8] = {};
        const float* w = weights_[l].data() + o * in.size();
        size_t k = 0;
        for (; k + 8 <= in.size(); k += 8)
          for (size_t j = 0; j < 8; ++j) lanes[j] += w[k + j] * in[k + j];
        for (; k < in.size(); ++k) lanes[0] += w[k] * in[k];
        for (float v : lanes) out[o] += v;
        if (l + 1 < weights_.size()) out[o] = std::max(out[o], 0.0f);
      }
      values_.push_back(std::move(out));
    }
  }

  static std::vector<float> softmax(std::vector<float> v) {
    const float top = *std::max_element(v.begin(), v.end());
    float sum = 0;
    for (float& e : v) sum += e = std::exp(e - top);
    for (float& e : v) e /= sum;
    return v;
  }

  std::vector<size_t> sizes_;
  std::vector<std::vector<float>> weights_, biases_, values_;
};

// The best share of right answers after any of five epochs: SGD at this rate still moves up and down between
// them.
double best_accuracy(Network network, const datasets::Split& split) {
  const datasets::Loader loader(split.train, {.batch_size = 64, .seed = 3});
  const int64_t n = split.test.size();
  double best = 0;
  for (int64_t e = 0; e < 5; ++e) {
    for (const datasets::Batch& batch : loader.epoch(e)) network.learn(batch, 0.1f);
    int64_t right = 0;
    for (int64_t i = 0; i < n; ++i)
      right += network.classify(split.test.x.data<float>() + i * 784) == split.test.y.data<int64_t>()[i];
    best = std::max(best, static_cast<double>(right) / static_cast<double>(n));
  }
  return best;
}

}  // namespace

TEST_CASE("a network with hidden layers learns drawn digits clearly better than a linear one",
          "[data][slow]") {
  const datasets::Dataset all = datasets::generated_digits(12'000, 1);
  const datasets::Split split{datasets::rows(all, 0, 10'000), datasets::rows(all, 10'000, 2'000)};
  const double linear = best_accuracy(Network({784, 10}), split);
  const double hidden = best_accuracy(Network({784, 128, 64, 10}), split);
  INFO("linear " << linear << ", hidden layers " << hidden);
  CHECK(linear > 0.75);
  CHECK(linear < 0.92);
  CHECK(hidden > 0.93);
  CHECK(hidden > linear + 0.03);
}
