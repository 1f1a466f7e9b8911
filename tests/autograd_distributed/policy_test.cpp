// Reinforcement learning: an agent with a policy, and observers on other workers that act by asking it.
#include <catch2/catch.hpp>

#include "troupe/troupe.h"

using namespace troupe;

namespace {

constexpr int64_t kStates = 3;
constexpr int kSteps = 6;

// Learns by REINFORCE. With `batch` > 1, questions wait until so many observers ask, and are answered
// together.
struct Agent : Actor {
  explicit Agent(int observers) : batch(observers), random(7), policy(kStates, kStates, random) {}
  Task<int64_t> act(int64_t state, double uniform) {
    waiting.push_back({state, uniform, {}});
    const auto answer = waiting.back().answer.future();
    if (std::ssize(waiting) == batch) decide();
    co_return co_await answer;
  }
  void decide() {
    std::vector<float> rows;
    for (const auto& w : waiting)
      for (int64_t s = 0; s < kStates; ++s) rows.push_back(s == w.state);
    const auto n = static_cast<int64_t>(waiting.size());
    const Tensor chances = softmax(policy(tensor(rows).reshape({n, kStates})), -1);
    const auto values = chances.to_vector<float>();
    for (int64_t i = 0; auto& w : std::exchange(waiting, {})) {
      int64_t action = 0;
      double left = w.uniform;
      while (action < kStates - 1 && (left -= values[static_cast<size_t>(i * kStates + action)]) >= 0)
        ++action;
      // What is worth doing in a state is the action of its number.
      const double reward = action == w.state ? 1 : 0;
      const Tensor chosen = zeros({n, kStates});
      chosen.alias({}, {}, i * kStates + action).fill_(1);
      const Tensor gain = ops::mul(ops::sum(ops::mul(ops::log(chances), chosen)), 0.3 - reward);
      loss = loss.defined() ? ops::add(loss, gain) : gain;
      total += reward;
      w.answer.set(action);
      ++i;
    }
  }
  double learn() {
    autograd::backward(loss);
    optim::SGD(policy.parameters(), {.lr = 0.3}).step();
    policy.zero_grad();
    loss = {};
    return std::exchange(total, 0);
  }
  struct Question {
    int64_t state;
    double uniform;
    Promise<int64_t> answer;
  };
  int batch;
  Generator random;
  nn::Linear policy;
  std::vector<Question> waiting;
  Tensor loss;
  double total = 0;
  static constexpr auto remote = methods<&Agent::act, &Agent::learn>;
};

struct Observer : Actor {
  explicit Observer(uint64_t seed) : random(seed) {}
  Task<int> episode(RRef<Agent> agent) {
    int right = 0;
    for (int step = 0; step < kSteps; ++step) {
      const int64_t state = static_cast<int64_t>(random.uniform(0, kStates));
      const int64_t action = co_await agent.call<&Agent::act>(state, random.uniform(0, 1));
      right += action == state;
    }
    co_return right;
  }
  Generator random;
  static constexpr auto remote = methods<&Observer::episode>;
};

}  // namespace

TEST_CASE("an agent learns from observers on other workers, one by one and with its answers in batches") {
  const int batch = GENERATE(1, 2);
  auto cluster = Cluster::in_process(3, hosting<Agent, Observer>());
  auto agent = cluster->spawn<Agent>("w0", batch);
  auto one = cluster->spawn<Observer>("w1", uint64_t{1}), two = cluster->spawn<Observer>("w2", uint64_t{2});
  double early = 0, late = 0;
  for (int episode = 0; episode < 120; ++episode) {
    const auto a = one.call<&Observer::episode>(agent), b = two.call<&Observer::episode>(agent);
    const int right = a.get() + b.get();
    const double rewards = agent.call<&Agent::learn>().get();
    CHECK(rewards == right);
    if (episode < 20) early += rewards;
    if (episode >= 100) late += rewards;
  }
  CHECK(early < 20 * 2 * kSteps * 0.75);
  CHECK(late > 20 * 2 * kSteps * 0.9);
}
