// A perceptron whose parameters are in servers follows PyTorch's losses, however it is cut.
#include <catch2/catch.hpp>

#include "tests/parallel/trainers.h"
#include "tests/support/nothing_left.h"

using namespace troupe;
using namespace troupe::testing;
using namespace troupe::parallel;

namespace {

void follow(const Run& run, int steps, int trainers, const std::vector<Place>& servers,
            const std::string& policy, int64_t block_bytes, bool recorded) {
  INFO(run.str() << ": " << trainers << " trainers, " << servers.size() << " servers, " << policy
                 << ", blocks of " << block_bytes << ", recorded " << recorded);
  const auto cluster = Cluster::in_process(3, {hosting<Trainer>()});
  const auto losses = train_served(*cluster, run, steps, trainers, servers, policy, block_bytes, recorded);
  for (int i = 0; i < steps; ++i) {
    INFO("step " << i);
    REQUIRE(std::abs(losses[size_t(i)] - run.losses.at(size_t(i))) <= tolerance(run));
  }
  nothing_left(*cluster);
}

}  // namespace

TEST_CASE("a perceptron in servers follows PyTorch's losses under BSP and SSP(0)", "[trajectory][oracle]") {
  for (const Run& run : mlp_runs()) {
    if (!has_data(run)) continue;
    for (const int trainers : {1, 2, 4})
      for (const char* policy : {"bsp", "ssp(0)"})
        follow(run, static_cast<int>(run.losses.size()), trainers, {"w1", "w2"}, policy, 4 << 20, false);
  }
}

// Without float32's roundings, which a steep run blows up (PyTorch's own strays by 9e-4), nothing is left of
// the distance.
TEST_CASE("in float64 a perceptron in servers does what one in one place does", "[trajectory]") {
  for (const Run& run : mlp_runs()) {
    if (!has_data(run)) continue;
    const int steps = static_cast<int>(run.losses.size());
    const auto expected = train_here(run, steps, float64);
    for (const int trainers : {1, 2, 4})
      for (const char* policy : {"bsp", "ssp(0)"}) {
        INFO(run.str() << ": " << trainers << " trainers, " << policy);
        const auto cluster = Cluster::in_process(3, {hosting<Trainer>()});
        const auto losses =
            train_served(*cluster, run, steps, trainers, {"w1", "w2"}, policy, 4 << 20, false, float64);
        for (int i = 0; i < steps; ++i) {
          INFO("step " << i);
          REQUIRE(std::abs(losses[size_t(i)] - expected[size_t(i)]) <= 1e-10);
        }
        nothing_left(*cluster);
      }
  }
}

TEST_CASE("gradients through pull, and blocks of any size, give the same losses", "[trajectory][oracle]") {
  for (const Run& run : mlp_runs()) {
    if (run.data != "generated") continue;
    for (const int64_t bytes : {4 << 20, 70000}) {
      follow(run, 8, 2, {"w1"}, "bsp", bytes, true);
      follow(run, 8, 3, {"w0", "w1", "w2"}, "bsp", bytes, false);
    }
    follow(run, 8, 1, {"w0"}, "quorum(1)", 100000, true);
    follow(run, 8, 1, {"w1"}, "async", 4 << 20, false);
  }
}
