// A perceptron whose parameters are in servers follows PyTorch's losses, however it is cut.
#include <catch2/catch.hpp>

#include "tests/parallel/trainers.h"
#include "tests/support/nothing_left.h"

using namespace troupe;
using namespace troupe::testing;
using namespace troupe::parallel;

namespace {

void follow(const Run& run, int steps, int trainers, const std::vector<Place>& servers,
            const std::string& policy, int64_t block_bytes, bool through_pull, DType dtype = float32) {
  INFO(run.str() << ": " << trainers << " trainers, " << servers.size() << " servers, " << policy
                 << ", blocks of " << block_bytes << ", gradients through pull " << through_pull << ", "
                 << name(dtype));
  const auto cluster = Cluster::in_process(3, {hosting<Trainer>()});
  const auto losses =
      train_served(*cluster, run, steps, trainers, servers, policy, block_bytes, through_pull, dtype);
  REQUIRE(losses.size() == static_cast<size_t>(steps));
  const auto [distance, step] = farthest(run, losses, dtype);
  INFO("largest difference at step " << step);
  CHECK(distance <= tolerance(run, dtype));
  nothing_left(*cluster);
}

void whole_runs(const std::string& data, DType dtype) {
  for (const Run& run : mlp_runs(data))
    for (const int trainers : {1, 2, 4})
      for (const char* policy : {"bsp", "ssp(0)"})
        follow(run, static_cast<int>(run.losses.size()), trainers, {"w1", "w2"}, policy, 4 << 20, false,
               dtype);
}

}  // namespace

TEST_CASE("a perceptron in servers follows PyTorch's losses under BSP and SSP(0)", "[trajectory][oracle]") {
  whole_runs("generated", float32);
}

TEST_CASE("a perceptron in servers in float64 follows PyTorch's losses", "[trajectory][oracle]") {
  whole_runs("generated", float64);
}

TEST_CASE("a perceptron in servers follows PyTorch's losses on mnist", "[trajectory][oracle]") {
  if (!has_data("mnist")) return;
  whole_runs("mnist", float32);
}

TEST_CASE("a perceptron in servers in float64 follows PyTorch's losses on mnist", "[trajectory][oracle]") {
  if (!has_data("mnist")) return;
  whole_runs("mnist", float64);
}

TEST_CASE("gradients through pull, and blocks of any size, give the same losses", "[trajectory][oracle]") {
  for (const Run& run : mlp_runs("generated")) {
    for (const int64_t bytes : {4 << 20, 70000}) {
      follow(run, 8, 2, {"w1"}, "bsp", bytes, true);
      follow(run, 8, 3, {"w0", "w1", "w2"}, "bsp", bytes, false);
    }
    follow(run, 8, 1, {"w0"}, "quorum(1)", 100000, true);
    follow(run, 8, 1, {"w1"}, "async", 4 << 20, false);
  }
}
