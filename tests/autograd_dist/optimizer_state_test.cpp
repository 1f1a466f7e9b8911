// States of distributed optimizers: saved, and loaded into a fresh cluster.
#include <catch2/catch.hpp>

#include <filesystem>

#include "data/safetensors.h"
#include "tests/autograd_dist/half.h"
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
  CHECK(optimizer.lr() == 0.02);  // options are part of the state
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

TEST_CASE("states that do not fit are refused by the actors that they do not fit") {
  auto cluster = Cluster::in_process(3, hosting<Half>());
  TwoHalves halves(*cluster);
  optim::Distributed<optim::SGD> optimizer({halves.a, halves.b}, {.lr = 0.1, .momentum = 0.9});
  train(halves, optimizer, 0, 2);
  const auto states = optimizer.state();
  CHECK_THAT(invalid_text([&] { optimizer.load_state({states[0]}); }), Contains("1 states for 2 actors"));
  CHECK_THAT(invalid_text([&] {
               optimizer.load_state({states[1], states[0]});
             }),
             Contains("loading the state failed on 2 of 2 actors: w1 (troupe::testing::Half#1): [optim] "
                      "state 0.momentum_buffer "
                      "is float32 [2, 5], expected float32 [5, 3]; w2 (troupe::testing::Half#2): "));
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
  CHECK(datasets::read_safetensors(file(1)).contains("0.exp_avg"));
  CHECK_THAT(invalid_text([&] { adamw.load(folder.path.string()); }),
             Contains("2 of 2 actors") && Contains("holds the state of adam, expected that of adamw"));
  std::filesystem::remove(file(1));
  CHECK_THAT(
      invalid_text([&] { adam.load(folder.path.string()); }),
      Contains("1 of 2 actors: w2 (troupe::testing::Half#2)") && Contains("optimizer-1-of-2.safetensors"));
  CHECK_THAT(text_of([&] { adam.save("/dev/null/nowhere"); }), Contains("cannot make the folder"));
}
