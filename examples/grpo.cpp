// Reinforcement learning of a language model (GRPO, Shao et al. 2024): rollout actors write answers to sums, which are
// checked, and a learner of two replicas makes right ones more likely. `grpo`, or `troupe run -n 6 --elastic grpo`, where
// workers may be killed: it ends with the same numbers.
#include <troupe/data.h>
#include <troupe/llm.h>
#include <troupe/pool.h>
#include <troupe/replicas.h>
#include <troupe/tools/program.h>

#include <cstdio>
using namespace troupe;
using parallel::split;

constexpr int64_t kPlus = 10, kEquals = 11, kPrompt = 4, kAnswer = 2;  // "7+5=" and "12", a digit as a token

llm::DecoderOptions decoder() {
  return {.vocab_size = 12, .hidden_size = 64, .intermediate_size = 128, .num_hidden_layers = 2, .num_attention_heads = 4,
          .max_position_embeddings = kPrompt + kAnswer};
}

// log p of the answers' tokens, [texts, kAnswer].
Tensor answer_logs(llm::Decoder& model, const Tensor& texts) {
  const Tensor logits = model(texts.slice(1, 0, kPrompt + kAnswer - 1)).slice(1, kPrompt - 1, kPrompt + kAnswer - 1);
  return log_softmax(logits, 2).gather(2, texts.slice(1, kPrompt, kPrompt + kAnswer).unsqueeze(2)).squeeze(2);
}

struct Learner : nn::ModuleActor<llm::Decoder> {
  Learner() : ModuleActor(decoder()) {}
  // What PPO clips, of each token: answers better than their group's mean become likelier.
  Tensor loss(Tensor texts, Tensor logs, Tensor advantages) {
    const Tensor ratio = exp(answer_logs(net, texts) - logs), gain = advantages.unsqueeze(1);
    return -minimum(ratio * gain, clamp(ratio, 0.8, 1.2) * gain).mean();
  }
  StateDict weights() { return net.state_dict(); }
  static constexpr auto remote = methods<&Learner::loss, &Learner::weights>;
};

struct Answers {  // texts int64 [answers, kPrompt + kAnswer], their tokens' log p, how much better than the group
  Tensor texts, logs, advantages;
  double reward = 0;
};

struct Rollout : Actor {
  // Takes the learner's weights, straight from there, unless it has that version.
  Task<Answers> answer(RRef<Learner> learner, int64_t version, uint64_t seed, int64_t prompts, int64_t group) {
    if (version_ != version) model.load_state_dict(co_await learner.call<&Learner::weights>()), version_ = version;
    const NoGradGuard none;
    Generator random(seed);
    std::vector<int64_t> ids;
    for (int64_t p = 0; p < prompts; ++p) {
      const auto a = int64_t(random.below(10)), b = int64_t(random.below(10));
      for (int64_t g = 0; g < group; ++g) ids.insert(ids.end(), {a, kPlus, b, kEquals});
    }
    Tensor texts = tensor(ids).reshape({prompts * group, kPrompt});
    for (int64_t t = 0; t < kAnswer; ++t)
      texts = cat({texts, softmax(model(texts).select(1, -1), 1).multinomial(1, false, random)}, 1);
    const auto all = texts.to_vector<int64_t>();
    std::vector<float> rewards;
    for (size_t i = 0; i < all.size(); i += kPrompt + kAnswer) {
      const int64_t sum = all[i] + all[i + 2];
      rewards.push_back(0.5F * float(all[i + 4] == sum / 10) + 0.5F * float(all[i + 5] == sum % 10));
    }
    const Tensor each = tensor(rewards).reshape({prompts, group});
    const Tensor better = (each - each.mean({1}, true)) / (each.std({1}, false, true) + 1e-4);
    co_return {texts, answer_logs(model, texts), better.flatten(), each.mean().item<double>()};
  }
  llm::Decoder model{decoder()};
  int64_t version_ = -1;
  Keep keep{Keep::anew, model, Keep::anew, version_};
  static constexpr auto remote = methods<&Rollout::answer>;
};

struct Replay {  // answers of the newest steps, of which each step learns from as many as are new
  void add(const Answers& a, int64_t most) {
    const auto behind = [&](const Tensor& all, const Tensor& more) {
      const Tensor both = all.defined() ? cat({all, more}) : more;
      return both.slice(0, std::max<int64_t>(0, both.size(0) - most), both.size(0)).clone();
    };
    texts = behind(texts, a.texts), logs = behind(logs, a.logs), advantages = behind(advantages, a.advantages);
  }
  Tensor texts, logs, advantages;
};

int main(int argc, char** argv) {
  tools::Flags flags("grpo", "A language model learns sums from what its answers are worth.");
  auto& steps = flags.whole("--steps", 400, "training steps", {1, 1e6});
  auto& rollouts = flags.whole("--rollouts", 4, "actors that write answers", {1, 256});
  auto& prompts = flags.whole("--prompts", 32, "sums that each writes answers to in a step", {1, 1e4});
  auto& group = flags.whole("--group", 8, "answers to a sum, that are compared", {2, 1e3});
  auto& rate = flags.number("--lr", 2e-3, "learning rate of AdamW", {1e-8, 1});
  auto& seed = flags.seed("of weights, sums and answers");
  auto& picture = flags.picture("--chart", "grpo.svg", "picture of the reward (SVG)");
  auto& saved = flags.checkpoints();
  if (auto code = flags.reaches("reward >= 0.9").parse(argc, argv)) return *code;

  const auto train = [&](Cluster& cluster) {
    flags.check_outputs();
    manual_seed(seed);
    // w0 drives; two workers learn, the others write.
    auto workers = cluster.workers();
    if (workers.size() > 1) workers.erase(workers.begin());
    const auto learners = std::min<std::ptrdiff_t>(2, std::ssize(workers));
    parallel::DataParallel<Learner> net(cluster.here(), Group(cluster, {workers.begin(), workers.begin() + learners}));
    optim::Distributed<optim::AdamW> optimizer(net, {.lr = rate, .weight_decay = 0});
    if (std::ssize(workers) > learners) workers.erase(workers.begin(), workers.begin() + learners);
    Pool<Rollout> pool(cluster, {.size = static_cast<int>(rollouts), .workers = workers});
    pool.again<&Rollout::answer>();  // who answers, and how often, makes no difference: a task has its seed
    Replay replay;
    tools::Series rewards{.name = "reward", .smooth = 10};
    tools::Progress bar({.total = steps});
    Keep keep("texts", replay.texts, "logs", replay.logs, "advantages", replay.advantages, "rewards", rewards);
    Job job(cluster);
    for (const int64_t step : job.steps(steps)) {
      double reward = 0;
      std::vector<Answers> came(static_cast<size_t>(rollouts));
      job.attempt([&] {
        using Task = std::tuple<RRef<Learner>, int64_t, uint64_t, int64_t, int64_t>;
        std::vector<Task> tasks;
        for (int64_t i = 0; i < rollouts; ++i)
          tasks.emplace_back(net.replicas().front(), step, Generator(seed).split(uint64_t(step * rollouts + i)).next(), prompts,
                             group);
        for (const auto& [index, answers] : pool.as_they_come<&Rollout::answer>(tasks)) came[index] = answers;
        Replay batch;  // what is new, and as many from before
        for (const Answers& a : came) batch.add(a, 1 << 30);
        const int64_t n = batch.texts.size(0);
        if (replay.texts.defined()) {
          Generator random = Generator(seed).split(uint64_t(step) + (1ULL << 40));
          std::vector<int64_t> rows;
          for (int64_t i = 0; i < n; ++i) rows.push_back(int64_t(random.below(uint64_t(replay.texts.size(0)))));
          const Tensor index = tensor(rows);
          batch.add({replay.texts.index_select(0, index), replay.logs.index_select(0, index),
                     replay.advantages.index_select(0, index)}, 1 << 30);
        }
        autograd::Context context(cluster);
        context.backward(net.mean<&Learner::loss>(split(batch.texts), split(batch.logs), split(batch.advantages)).get());
        optimizer.clip_grad_norm(context, 1.0);
        optimizer.step(context);
      });
      for (const Answers& a : came) replay.add(a, 4 * std::ssize(came) * prompts * group), reward += a.reward / double(came.size());
      Job::check_current(reward);
      rewards.add(double(step + 1), reward);
      bar.update(step + 1, {{"reward", reward}}, rollouts * prompts * group);
    }
    bar.finish();
    std::printf("reward %.3f in the last 20 steps; picture: %s\n", rewards.mean_of_last(20), picture.c_str());
    tools::write_chart(picture, {"Learning sums", "step", "reward", "", {rewards}});
  };
  return launch(train, {.checkpoints = saved});
}
