// States of distributed optimizers: saved, and loaded into a fresh cluster.
#include <catch2/catch.hpp>

#include <filesystem>

#include "data/formats/safetensors.h"
#include "tests/autograd_distributed/half.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;

namespace {

void train(TwoHalves& halves, optim::DistributedOptimizer& optimizer, int from, int to) {
  for (int step = from; step < to; ++step) {
    autograd::Context context(halves.cluster);
    halves.backward(context, step);
    optimizer.step(context);
  }
}

enum class By { messages, files };

template <class O>
void goes_on(By by, typename O::Options options) {
  INFO(O::kName << (by == By::files ? " by files" : " by messages"));
  Folder folder;
  Tensors parameters, wanted;
  std::vector<std::map<std::string, Tensor>> states;
  {
    auto cluster = Cluster::in_process(3, hosting<Half>());
    TwoHalves halves(*cluster);
    optim::Distributed<O> optimizer({halves.a, halves.b}, options);
    train(halves, optimizer, 0, 4);
    optimizer.set_lr(0.02);
    train(halves, optimizer, 4, 6);
    optimizer.set_lr(0.01);  // and no step since
    parameters = halves.values();
    if (by == By::messages)
      states = optimizer.state();
    else
      optimizer.save(folder.path.string() + "/new");
    train(halves, optimizer, 6, 12);
    wanted = halves.values();
  }
  auto cluster = Cluster::in_process(3, hosting<Half>());
  TwoHalves halves(*cluster);
  optim::Distributed<O> optimizer({halves.a, halves.b}, options);
  halves.a.template call<&Half::set_values>(Tensors{parameters[0], parameters[1]}).get();
  halves.b.template call<&Half::set_values>(Tensors{parameters[2], parameters[3]}).get();
  if (by == By::messages)
    optimizer.load_state(states);
  else
    optimizer.load(folder.path.string() + "/new");
  CHECK(optimizer.lr() == 0.01);  // options are part of the state
  train(halves, optimizer, 6, 12);
  CHECK(same_bits(halves.values(), wanted));
}

}  // namespace

TEST_CASE("training goes on bit for bit in a fresh cluster, from states by message and by file") {
  for (const By by : {By::messages, By::files}) {
    goes_on<optim::SGD>(by, {.lr = 0.1, .momentum = 0.9});
    goes_on<optim::AdamW>(by, {.lr = 0.01, .amsgrad = true});
    goes_on<optim::Rprop>(by, {.lr = 0.01});
  }
}

namespace {

// Eight steps of SGD with momentum under a schedule and a plateau, of which the last five come after a resume
// with what `save` gives, loaded in that order; of actors, or of one model.
struct Run {
  optim::Tunable& optimizer;
  optim::Scheduler momentum, rate;
  optim::Plateau plateau;
  explicit Run(optim::Tunable& o)
      : optimizer(o),
        momentum(o, optim::exponential(0.9), "momentum"),
        rate(o, optim::warm_up(3, optim::exponential(0.5))),
        plateau({.factor = 0.5, .patience = 0}) {}
  void after_step(int step) {
    rate.step();
    momentum.step();
    if (step % 2) plateau.step(optimizer, 1);  // halves what the schedule has set, for one step
  }
  using State = std::map<std::string, Tensor>;
  std::vector<State> states() const { return {momentum.state(), rate.state(), plateau.state()}; }
  void load(const std::vector<State>& states) {
    momentum.load_state(states[0]), rate.load_state(states[1]), plateau.load_state(states[2]);
  }
};
constexpr int kSteps = 8, kSaved = 3;

Tensors of_whole(const std::optional<bool>& optimizer_first) {
  Whole whole;
  auto optimizer =
      std::make_unique<optim::SGD>(whole.parameters(), optim::SGD::Options{.lr = 0.1, .momentum = 0.9});
  auto run = std::make_unique<Run>(*optimizer);
  for (int step = 0; step < kSteps; ++step) {
    if (step == kSaved && optimizer_first) {
      const auto state = optimizer->state();
      const auto others = run->states();
      run.reset();
      optimizer =
          std::make_unique<optim::SGD>(whole.parameters(), optim::SGD::Options{.lr = 7, .momentum = 0.3});
      run = std::make_unique<Run>(*optimizer);
      if (*optimizer_first) optimizer->load_state(state);
      run->load(others);
      if (!*optimizer_first) optimizer->load_state(state);
    }
    whole.backward(step);
    optimizer->step();
    run->after_step(step);
  }
  Tensors out;
  for (const Tensor& p : whole.parameters()) out.push_back(p.detach());
  return out;
}

Tensors of_halves(bool optimizer_first) {
  Folder folder;
  auto cluster = Cluster::in_process(3, hosting<Half>());
  TwoHalves halves(*cluster);
  std::vector<Run::State> others;
  {
    optim::Distributed<optim::SGD> optimizer({halves.a, halves.b}, {.lr = 0.1, .momentum = 0.9});
    Run run(optimizer);
    for (int step = 0; step < kSaved; ++step) {
      train(halves, optimizer, step, step + 1);
      run.after_step(step);
    }
    optimizer.save(folder.path.string());
    others = run.states();
  }
  optim::Distributed<optim::SGD> optimizer({halves.a, halves.b}, {.lr = 7, .momentum = 0.3});
  Run run(optimizer);
  if (optimizer_first) optimizer.load(folder.path.string());
  run.load(others);
  if (!optimizer_first) optimizer.load(folder.path.string());
  for (int step = kSaved; step < kSteps; ++step) {
    train(halves, optimizer, step, step + 1);
    run.after_step(step);
  }
  return halves.values();
}

}  // namespace

TEST_CASE("schedules and a plateau go on from what they had set, in whatever order all is loaded") {
  const Tensors unbroken = of_whole({});
  for (const bool optimizer_first : {true, false}) {
    CHECK(same_bits(of_whole(optimizer_first), unbroken));
    CHECK(same_bits(of_halves(optimizer_first), unbroken));
  }
}

TEST_CASE("every option that was changed since the last step is saved, also where there was none") {
  Folder folder;
  auto cluster = Cluster::in_process(3, hosting<Half>());
  TwoHalves halves(*cluster);
  const int steps = GENERATE(0, 2);
  const ValueMap changed{{"lr", 0.125}, {"beta1", 0.5},         {"beta2", 0.75},
                         {"eps", 1e-3}, {"weight_decay", 0.25}, {"maximize", true}};
  const auto has = [&](const optim::Tunable& o) {
    const ValueMap now = o.options_map(0);
    for (const auto& [name, value] : changed) {
      INFO(name);
      CHECK(now.at(name).describe() == value.describe());
    }
  };
  optim::Distributed<optim::AdamW> before({halves.a, halves.b}, {.lr = 1});
  train(halves, before, 0, steps);
  before.change_options(0, changed);
  const auto states = before.state();
  before.save(folder.path.string());
  optim::Distributed<optim::AdamW> by_file({halves.a, halves.b}, {.lr = 1}),
      by_message({halves.a, halves.b}, {.lr = 1});
  by_file.load(folder.path.string());
  by_message.load_state(states);
  has(by_file);
  has(by_message);
}

TEST_CASE("states that do not fit are refused by the actors that they do not fit") {
  auto cluster = Cluster::in_process(3, hosting<Half>());
  TwoHalves halves(*cluster);
  optim::Distributed<optim::SGD> optimizer({halves.a, halves.b}, {.lr = 0.1, .momentum = 0.9});
  train(halves, optimizer, 0, 2);
  const auto states = optimizer.state();
  CHECK_THAT(invalid_text([&] { optimizer.load_state({states[0]}); }), Contains("1 states for 2 actors"));
  CHECK_THAT(invalid_text([&] { optimizer.load_state({states[1], states[0]}); }),
             Contains("loading the state failed on 2 of 2 actors: troupe::testing::Half#0:1 on w1: [optim] "
                      "state 0.weight.momentum_buffer "
                      "is float32 [2, 5], expected float32 [5, 3]; troupe::testing::Half#0:2 on w2: "));
  auto other = states;
  other[1]["group0.lr"] = tensor(0.5, float64);
  CHECK_THAT(invalid_text([&] { optimizer.load_state(other); }),
             Contains("the states of actors 0 and 1 differ in the option lr"));
  CHECK(optimizer.lr() == 0.1);
}

TEST_CASE("state files are named by actor and refused if they are missing or of another optimizer") {
  Folder folder;
  auto cluster = Cluster::in_process(3, hosting<Half>());
  TwoHalves halves(*cluster);
  optim::Distributed<optim::Adam> adam({halves.a, halves.b}, {.lr = 0.1});
  optim::Distributed<optim::AdamW> adamw({halves.a, halves.b}, {.lr = 0.1});
  train(halves, adam, 0, 2);
  adam.save(folder.path.string());
  const auto file = [&](int i) {
    return folder.path.string() + "/optimizer-" + std::to_string(i) + "-of-2.safetensors";
  };
  CHECK(datasets::read_safetensors(file(1)).contains("0.weight.exp_avg"));
  CHECK_THAT(invalid_text([&] { adamw.load(folder.path.string()); }),
             Contains("2 of 2 actors") && Contains("holds the state of adam, expected that of adamw"));
  std::filesystem::remove(file(1));
  CHECK_THAT(
      invalid_text([&] { adam.load(folder.path.string()); }),
      Contains("1 of 2 actors: troupe::testing::Half#0:2 on w2") && Contains("optimizer-1-of-2.safetensors"));
  CHECK_THAT(text_of([&] { adam.save("/dev/null/nowhere"); }), Contains("cannot make the folder"));
}
