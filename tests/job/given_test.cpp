// What a program gives, and the checkpoint that it goes on from has otherwise, is said.
#include <catch2/catch.hpp>

#include "core/base/log.h"
#include "tests/support/folder.h"
#include "troupe/checkpoint/given.h"
#include "troupe/troupe.h"

using namespace troupe;
using Catch::Contains;

namespace {

struct Learner : Actor {
  explicit Learner(double momentum)
      : line(1, 1), optimizer(line.parameters(), {.lr = 0.1, .momentum = momentum}) {}
  Tensor forward(Tensor x) { return line(x); }
  nn::Linear line;
  optim::SGD optimizer;
  static constexpr auto remote = methods<&Learner::forward>;
};

std::vector<std::string>& said() {
  static std::vector<std::string> lines;
  return lines;
}

struct Rates {
  double lr = 0.05, momentum = 0.9, warm = 0;
  int64_t steps = 4;
};

// What a run with these rates says when it begins. Its last rate goes to `last`.
std::vector<std::string> run(const std::string& dir, const Rates& rates, double& last) {
  said().clear();
  internal::log::set_sink([](internal::log::Level, const std::string& text) { said().push_back(text); });
  {
    auto cluster =
        Cluster::in_process(3, hosting<Learner>(), {.checkpoints = {.dir = dir, .resume = true, .every = 1}});
    const auto a = cluster->spawn<Learner>("w1", rates.momentum), b = cluster->spawn<Learner>("w2", 0.5);
    optim::Distributed<optim::SGD> optimizer({a, b}, {.lr = rates.lr});
    optim::Scheduler rate(optimizer, optim::warm_up(10, optim::exponential(1), rates.warm));
    Job job(*cluster);
    for ([[maybe_unused]] const int64_t step : job.steps(rates.steps)) {
      autograd::Context context(*cluster);
      context.backward(b(a(ones({1, 1}))).get().sum());
      optimizer.step(context), rate.step();
    }
    last = optimizer.number("lr", 0);
  }
  internal::log::set_sink(nullptr);
  return said();
}

}  // namespace

TEST_CASE("rates that a checkpoint has otherwise than the program gives them are said, each once") {
  const testing::Folder folder;
  const std::string dir = (folder.path / "run").string();
  double first = 0, second = 0;
  CHECK(run(dir, {}, first).empty());
  CHECK(run(dir, {.steps = 6}, second).empty());  // though the schedule has changed it since
  CHECK(second > first);
  double third = 0;
  const auto lines = run(dir, {.lr = 0.5, .momentum = 0.8, .steps = 6}, third);
  CHECK(third == second);
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines[0],
             Contains("the checkpoint of step 6") &&
                 Contains("Scheduler#0.base of driver is given as 0.5, and was as 0.05 when the job began") &&
                 Contains("sgd#0.group0.momentum of given_test::Learner#0 is given as 0.8, and was as 0.9"));
  CHECK_THAT(lines[0], !Contains("Learner#1"));
  CHECK(run(dir, {.lr = 0.05, .steps = 7}, third).empty());
}

TEST_CASE("of what is given otherwise a few are named, those of the driver first") {
  using internal::given_otherwise;
  const internal::Given first{{"A#0", {{"sgd#0.group0.lr", "1"}}}, {"driver", {{"sgd#0.group0.lr", "1"}}}};
  CHECK(given_otherwise(first, first).empty());
  CHECK(given_otherwise(first, {}).empty());
  CHECK(given_otherwise({}, first).empty());  // a checkpoint of before
  CHECK(
      given_otherwise(first, {{"A#0", {{"sgd#0.group0.lr", "2"}}}, {"driver", {{"sgd#0.group0.lr", "2"}}}}) ==
      "sgd#0.group0.lr of driver is given as 2, and was as 1 when the job began");
  internal::Given many = first, others = first;
  for (int i = 0; i < 9; ++i) {
    many["B#0"][std::to_string(i)] = "1";
    others["B#0"][std::to_string(i)] = "2";
  }
  CHECK_THAT(given_otherwise(many, others),
             Contains("4 of B#0 is given as 2") && !Contains("5 of B#0") && Contains("; and 4 more"));
  CHECK(internal::given_in({{"lr", tensor(0.5, float64)},
                            {"rates", tensor({0.5, 2.0}, float64)},
                            {"on", tensor(true, boolean)},
                            {"n", tensor(3, int64)},
                            {"stream", tensor({1, 2, 3}, int64)},
                            {"many", zeros({17}, float64)},
                            {"w", zeros({2, 2}, float64)}}) ==
        std::map<std::string, std::string>{{"lr", "0.5"}, {"rates", "0.5, 2"}, {"on", "true"}, {"n", "3"}});
}
