// What policies are worth when steps stall now and then: clusters on a virtual clock.
#include <catch2/catch.hpp>

#include "core/base/generator.h"
#include "parallel/server/served_parameters.h"
#include "parallel/server/server.h"
#include "rref/ref_table.h"
#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace troupe::parallel;
using namespace std::chrono_literals;

namespace {

constexpr Duration kStep = 100ms;

// How long steps take; and what they compute, if anything.
struct Pace {
  double stalls = 0;    // part of the steps that take four times as long
  double slowness = 1;  // of the first trainer, always
};

internal::net::Network* network = nullptr;  // that the trainers sleep on

Future<void> sleep(Duration time) {
  Promise<void> promise;
  const auto over = promise.future();
  network->schedule(time, [promise] { promise.set(); });
  return over;
}

// Learns to be `target`, for ever: the gradient of half the squared distance, with noise.
struct Learner : Actor {
  Learner(Served served, Pace pace, double target, uint64_t seed)
      : client(std::move(served)), pace(pace), target(target), random(seed) {}
  Task<void> run() {
    while (true) {
      const auto values = client.pull();
      const Tensors w = co_await values;
      const double times = (random.uniform() < pace.stalls ? 4 : 1) * pace.slowness;
      const Future<void> computed =
          sleep(Duration(static_cast<int64_t>(times * static_cast<double>(kStep.count()))));
      co_await computed;
      const double noise = random.uniform(-0.5, 0.5);
      const auto pushed = client.push({add(sub(w[0], target), noise)});
      (void)co_await pushed;
    }
  }
  Client client;
  Pace pace;
  double target;
  Generator random;
  static constexpr auto remote = methods<&Learner::run>;
};

struct Outcome {
  double steps;  // per kStep
  double value;
  ServerReport report;
};

Outcome learn(const std::string& policy, int trainers, Pace pace, int steps,
              const internal::net::Faults& faults = {}) {
  SimulatedCluster cluster(1, trainers + 2, hosting<Server, Learner>(), {.timeout = 0s});
  network = &cluster.network();
  cluster.network().set_faults(faults);
  const Served served =
      serve(Here(internal::rref::RefTable::of(cluster.worker(0))), {"w1"}, {zeros({1})},
            {.options = {{"lr", 0.1}}, .policy = ServerPolicy::parse(policy), .trainers = trainers});
  std::vector<RRef<Learner>> learners;
  std::vector<Future<void>> runs;
  for (int i = 0; i < trainers; ++i) {
    const Pace own = i == 0 ? pace : Pace{pace.stalls, 1};
    learners.push_back(
        cluster.here(0).spawn<Learner>(size_t(i) + 2, served, own, double(i), uint64_t(i) + 1));
    runs.push_back(learners.back().call<&Learner::run>());
  }
  bool over = false;
  cluster.network().schedule(kStep * steps, [&] { over = true; });
  while (!over) REQUIRE(cluster.step());
  const ServerReport report = cluster.await(parallel::report(served)).value().at(0);
  const double value = cluster.await(read(served)).value()[0].item();
  return {static_cast<double>(report.open_step) / steps, value, report};
}

}  // namespace

TEST_CASE("with 10 % of the steps four times as long, SSP(3) and a quorum of 3 of 4 outrun BSP") {
  const Pace stalls{.stalls = 0.1};
  const double bsp3 = learn("bsp", 3, stalls, 1500).steps, bsp4 = learn("bsp", 4, stalls, 1500).steps;
  CHECK(bsp3 == Approx(1 / 1.813).epsilon(0.05));  // 1 / (1 + 3 (1 - 0.9^3))
  const double ssp = learn("ssp(3)", 3, stalls, 1500).steps / bsp3,
               quorum = learn("quorum(3)", 4, stalls, 1500).steps / bsp4,
               async = learn("async", 3, stalls, 1500).steps / bsp3;
  std::printf("steps against BSP: ssp(3) %.2f, async %.2f, quorum(3) of 4 %.2f\n", ssp, async, quorum);
  CHECK(ssp >= 1.2);
  CHECK(ssp <= 1.3);
  CHECK(async >= ssp);
  CHECK(quorum >= 1.4);
}

TEST_CASE("SSP cannot help a worker that is always slow, and who does not wait for it goes on") {
  const Pace slow{.slowness = 2};
  const double bsp = learn("bsp", 3, slow, 400).steps;
  CHECK(bsp == Approx(0.5).epsilon(0.02));
  CHECK(learn("ssp(3)", 3, slow, 400).steps / bsp == Approx(1).epsilon(0.02));
  CHECK(learn("quorum(2)", 3, slow, 400).steps / bsp == Approx(2).epsilon(0.05));
}

TEST_CASE("trainers converge under every policy, with stalls and with 10 % of the messages lost on the way") {
  const internal::net::Faults bad{.delay = 1ms, .jitter = 5ms, .drop = 0.1, .resend = 20ms};
  for (const std::string policy : {"bsp", "ssp(3)", "async", "delayed"}) {
    INFO(policy);
    const Outcome outcome = learn(policy, 3, {.stalls = 0.1}, 400, bad);
    CHECK(outcome.value == Approx(1).margin(0.25));  // the mean of 0, 1 and 2
    CHECK(outcome.report.version >= outcome.report.open_step - 1);
    CHECK(outcome.report.lost == 0);
  }
}

TEST_CASE("the staleness of SSP(s) stays within what its bound allows") {
  for (const int s : {1, 3}) {
    const auto delays = learn("ssp(" + std::to_string(s) + ")", 3, {.stalls = 0.2}, 600).report.delays;
    int64_t worst = 0, positive = 0;
    for (const auto& [delay, count] : delays)
      worst = std::max(worst, delay), positive += delay > 0 ? count : 0;
    CHECK(positive > 100);
    CHECK(worst <= 2 * (2 * s + 1));  // of each of the two others, from s behind to s ahead
  }
}
