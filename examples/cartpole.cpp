// Reinforcement learning with observers and a learner: each observer has a pole to balance and asks the
// learner what to do, who answers all of them at once and learns from what came of it. Alone (`cartpole`), or
// `troupe run -n 4 cartpole`, with the same poles falling.
#include <cstdio>
#include <map>

#include <troupe/tools/program.h>
#include <troupe/troupe.h>
using namespace troupe;

// A pole on a cart that is pushed left or right 50 times a second (Barto, Sutton and Anderson 1983), in SI
// units. An episode ends when the pole falls, when the cart leaves its track, or after 500 steps.
struct CartPole {
  static constexpr double kGravity = 9.8, kMass = 1.1, kPole = 0.1, kHalf = 0.5, kForce = 10, kTick = 0.02;
  bool push(bool right) {  // true: the episode is over
    const double sine = std::sin(angle), cosine = std::cos(angle);
    const double pushed = ((right ? kForce : -kForce) + kPole * kHalf * spin * spin * sine) / kMass;
    const double lever = kHalf * (4.0 / 3 - kPole * cosine * cosine / kMass);
    const double turning = (kGravity * sine - cosine * pushed) / lever;
    place += kTick * speed, speed += kTick * (pushed - kPole * kHalf * turning * cosine / kMass);
    angle += kTick * spin, spin += kTick * turning;
    return ++steps == 500 || std::abs(place) > 2.4 || std::abs(angle) > 12 * std::numbers::pi / 180;
  }
  std::vector<double> state() const { return {place, speed, angle, spin}; }
  double place, speed, angle, spin, steps = 0;
};

struct Rollout {  // which steps ended an episode, how long those were, and the state at the end
  std::vector<int64_t> over;
  std::vector<double> episodes, state;
};

struct Learner : Actor {  // has a policy, and a critic that guesses what is still to be gained
  Learner(int64_t observers, double lr, uint64_t seed)
      : count(observers), random(seed), optimizer({net(policy, 2, lr), net(critic, 1, lr)}) {}
  optim::Adam::Group net(nn::Sequential& out, int64_t outputs, double lr) {
    out.add(nn::Linear(4, 64, random)).add(nn::Tanh()).add(nn::Linear(64, 64, random)).add(nn::Tanh());
    return {out.add(nn::Linear(64, outputs, random)).parameters(), {.lr = lr}};
  }
  // Waits until all have asked, so that one pass answers all of them, whoever came first.
  Task<int64_t> act(uint64_t observer, std::vector<double> state) {
    seen[observer] = state;
    const auto decided = round.future();
    if (std::ssize(seen) == count) decide();
    co_await decided;
    co_return actions[actions.size() - static_cast<size_t>(count) + observer];
  }
  void decide() {
    NoGradGuard no_grad;
    for (const auto& [observer, state] : seen) states.insert(states.end(), state.begin(), state.end());
    const std::vector now(states.end() - 4 * count, states.end());
    const Tensor p = softmax(policy(tensor(now).reshape({count, 4})), 1);
    for (const double right : p.select(1, 1).to_vector<double>()) actions.push_back(random.uniform() < right);
    seen.clear();
    std::exchange(round, Promise<void>()).set();
  }
  // One step of advantage actor-critic (Mnih et al. 2016) on all that was done since the last one.
  void learn(std::vector<Rollout> rollouts) {
    for (const Rollout& r : rollouts) states.insert(states.end(), r.state.begin(), r.state.end());
    const auto rows = static_cast<int64_t>(actions.size());
    const Tensor all = tensor(std::exchange(states, {})).reshape({rows + count, 4});
    const Tensor logits = policy(all.slice(0, 0, rows)), guesses = critic(all).flatten();
    auto gains = guesses.to_vector<float>();  // those after the last steps stay guesses
    for (size_t at = actions.size(), n = rollouts.size(); at-- > 0;)
      gains[at] = 1 + (rollouts[at % n].over[at / n] ? 0 : 0.99f * gains[at + n]);
    const Tensor gained = tensor(gains).slice(0, 0, rows), guess = guesses.slice(0, 0, rows);
    const Tensor surprise = gained - guess.detach(), scale = surprise.var({}, false).sqrt() + 1e-8;
    const Tensor unlikely = cross_entropy(logits, tensor(std::exchange(actions, {})), "none");
    optimizer.zero_grad();
    const Tensor regret = (unlikely * (surprise - surprise.mean()) / scale).mean();
    autograd::backward(regret + mse_loss(guess, gained)), optimizer.step();
  }
  int64_t count;
  Generator random;
  nn::Sequential policy, critic;
  optim::Adam optimizer;
  Promise<void> round;                           // is kept when all observers have asked
  std::map<uint64_t, std::vector<double>> seen;  // in this round, by observer
  std::vector<double> states;                    // in all rounds since learn()
  std::vector<int64_t> actions;                  // in the same order; 1: right
  Keep keep{"random", random, Keep::anew, round};
  static constexpr auto remote = methods<&Learner::act, &Learner::learn>;
};

struct Observer : Actor {
  Observer(uint64_t number, uint64_t seed) : number(number), random(Generator(seed).split(number)) {}
  double some() { return random.uniform(-0.05, 0.05); }
  CartPole start() { return {some(), some(), some(), some()}; }
  Task<Rollout> observe(RRef<Learner> learner, int64_t steps) {
    Rollout out;
    for (int64_t t = 0; t < steps; ++t) {
      const auto answer = learner.call<&Learner::act>(number, pole.state());
      out.over.push_back(pole.push(co_await answer == 1));
      if (out.over.back()) out.episodes.push_back(pole.steps), pole = start();
    }
    out.state = pole.state();
    co_return out;
  }
  uint64_t number;
  Generator random;
  CartPole pole = start();
  Keep keep{"random", random, "pole", pole};
  static constexpr auto remote = methods<&Observer::observe>;
};

int main(int argc, char** argv) {
  tools::Flags flags("cartpole", "Learns to balance a pole: observers act, a learner learns.");
  auto& observers = flags.whole("--observers", 4, "each with a pole, dealt out to the workers", {1, 256});
  auto& steps = flags.whole("--steps", 200, "of each observer before the learner learns from them", {1, 1e5});
  auto& updates = flags.whole("--updates", 300, "of the learner, at most", {1, 1e6});
  auto& goal =
      flags.number("--goal", 475, "mean reward of 20 episodes to stop at; 500 is the most", {1, 501});
  auto& lr = flags.number("--lr", 0.01, "learning rate of Adam", {0, 100});
  auto& seed = flags.seed("of weights, poles and choices");
  auto& picture = flags.picture("--chart", "cartpole.svg", "picture of the rewards (SVG)");
  auto& saved = flags.checkpoints();
  if (auto code = flags.reaches("mean reward >= 475").parse(argc, argv)) return *code;

  const auto train = [&](Cluster& cluster) {
    flags.check_outputs();
    const auto workers = cluster.workers();
    const auto learner = cluster.spawn<Learner>(workers[0], observers, lr, seed);
    std::vector<RRef<Observer>> actors;
    for (size_t i = 0; i < static_cast<size_t>(observers); ++i)
      actors.push_back(cluster.spawn<Observer>(workers[(i + 1) % workers.size()], i, seed));
    tools::Series rewards{.name = "reward of an episode", .smooth = 5};
    double recent = 0, episodes = 0;
    tools::Progress bar({.total = updates});
    Keep keep("rewards", rewards, "recent", recent, "episodes", episodes);
    Job job(cluster);
    for (const int64_t update : job.steps(updates)) {
      if (recent >= goal) break;
      std::vector<Future<Rollout>> running;
      for (const auto& actor : actors) running.push_back(actor.call<&Observer::observe>(learner, steps));
      const auto rollouts = all(running, OnError::at_once).get();
      learner.call<&Learner::learn>(rollouts).get();
      for (const Rollout& r : rollouts)
        for (const double length : r.episodes) rewards.add(++episodes, length);
      if (episodes >= 20) recent = rewards.mean_of_last(20);
      bar.update(update + 1, {{"reward", recent}}, observers * steps);
    }
    bar.finish();
    std::printf("mean reward %.2f of the last 20 of %.0f episodes; picture: %s\n", recent, episodes,
                picture.c_str());
    tools::write_chart(picture, {"Balancing a pole", "episode", "reward", "", {rewards}});
  };
  return launch(train, {.checkpoints = saved});
}
