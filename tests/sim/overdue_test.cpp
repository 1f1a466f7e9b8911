// What a caller is told when its deadline passes: limit, time, and what the callee was doing.
#include <catch2/catch.hpp>

#include "actors/cell/this_call.h"
#include "parallel/server/served_parameters.h"
#include "parallel/server/server.h"
#include "parallel/server/server_actors.h"
#include "rref/ref_table.h"
#include "tests/support/error_of.h"
#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace std::chrono_literals;
using Catch::Contains;

namespace {

struct Trainer : Actor {
  Task<int64_t> train() {
    co_await over.future();
    co_return 1;
  }
  Task<int64_t> asks(RRef<Trainer> other) {
    co_return co_await other.with_timeout(0s).call<&Trainer::train>();
  }
  Task<void> waits_for_two() {
    this_call::waits_for("two of them");
    co_await over.future();
  }
  Promise<void> over;
  static constexpr auto remote = methods<&Trainer::train, &Trainer::asks, &Trainer::waits_for_two>;
};

std::string text(const Result<int64_t>& r) {
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().kind() == ErrorKind::deadline);
  return r.error().what();
}

}  // namespace

TEST_CASE("a call past the cluster's limit is told limit, time, the callee's work and with_timeout") {
  SimulatedCluster cluster(1, 3, hosting<Trainer>());
  const auto trainer = cluster.here(0).spawn<Trainer>(1);
  const auto start = cluster.now();
  const std::string late = text(cluster.await(trainer.call<&Trainer::train>()));
  CHECK(cluster.now() - start == 60s);  // not a moment later, although the callee was asked
  CHECK_THAT(late, Contains("Trainer::train on w1 gave no answer within 60 s") &&
                       Contains("ClusterOptions::timeout") && Contains("60 s have passed") &&
                       Contains("Trainer#") && Contains(" on w1 began it") && Contains("began it") &&
                       Contains("with_timeout("));
}

TEST_CASE("a call past its own limit says whose limit it was, and the callee says what it waits for") {
  SimulatedCluster cluster(2, 3, hosting<Trainer>());
  const auto trainer = cluster.here(0).spawn<Trainer>(1), other = cluster.here(0).spawn<Trainer>(2);
  SECTION("a nested call") {
    const std::string late = text(cluster.await(trainer.with_timeout(2s).call<&Trainer::asks>(other)));
    CHECK_THAT(late, Contains("within 2 s, the limit that with_timeout() gave it") &&
                         Contains("it waits (co_await) for Trainer::train on w2"));
  }
  SECTION("something that the method names") {
    const auto r = cluster.await(trainer.with_timeout(2s).call<&Trainer::waits_for_two>());
    REQUIRE_FALSE(r.ok());
    CHECK_THAT(r.error().what(), Contains("it waits (co_await) for two of them"));
  }
  SECTION("a callee on the caller's worker") {
    const auto here = cluster.here(0).spawn<Trainer>(0);
    const std::string late = text(cluster.await(here.with_timeout(2s).call<&Trainer::asks>(other)));
    CHECK_THAT(late, Contains("it waits (co_await) for Trainer::train on w2"));
  }
}

TEST_CASE("a callee that cannot be heard says nothing, and the deadline holds all the same") {
  SimulatedCluster cluster(3, 2, hosting<Trainer>());
  const auto trainer = cluster.here(0).spawn<Trainer>(1);
  cluster.settle();
  cluster.network().set_faults({.delay = 750ms});
  const auto start = cluster.now();
  const std::string late = text(cluster.await(trainer.with_timeout(1s).call<&Trainer::train>()));
  CHECK(cluster.now() - start == 1s);
  CHECK_THAT(late, Contains("Worker w1 has not said in time what it is doing"));
}

TEST_CASE("a negative timeout has passed: nothing is sent") {
  SimulatedCluster cluster(4, 2, hosting<Trainer>());
  const auto trainer = cluster.here(0).spawn<Trainer>(1);
  cluster.settle();
  for (const Duration past : {Duration(-1), Duration(-5s), Duration::min()}) {
    const auto answer = trainer.with_timeout(past).call<&Trainer::train>();
    REQUIRE(answer.is_ready());
    CHECK_THAT(text(*answer.peek()), Contains("has passed before the call: nothing was sent"));
  }
  CHECK_FALSE(cluster.step());
  for (const Duration past : {Duration(-1), Duration(-5s)}) {
    const auto value = trainer.with_timeout(0s).remote<&Trainer::train>().with_timeout(past).to_here();
    REQUIRE(value.is_ready());
    CHECK(value.peek()->error().kind() == ErrorKind::deadline);
  }
  const auto forever = trainer.with_timeout(Duration::max()).call<&Trainer::train>();  // no overflow
  cluster.settle();
  CHECK_FALSE(forever.is_ready());
}

TEST_CASE("a pull that waits names the trainers that are missing") {
  SimulatedCluster cluster(5, 4, internal::parallel::server_actors());
  const Here here(internal::rref::RefTable::of(cluster.worker(0)));
  const parallel::Served served = parallel::serve(
      here, {"w1"}, {zeros({2})},
      {.options = {{"lr", 0.1}}, .policy = parallel::ServerPolicy::parse("bsp"), .trainers = 2});
  const auto& server = served.servers.at(0).with_timeout(10s);
  const auto pull = [&](const std::string& trainer) {
    return server.call<&parallel::Server::pull>(trainer, int64_t{0}, parallel::Compression());
  };
  const auto refused = [&](const Result<parallel::Pulled>& r) {
    REQUIRE_FALSE(r.ok());
    CHECK(r.error().kind() == ErrorKind::deadline);
    return std::string(r.error().what());
  };
  REQUIRE(cluster.await(server.call<&parallel::Server::join>("a", WorkerId{2})).ok());
  CHECK_THAT(refused(cluster.await(pull("a"))), Contains("trainers to join: 1 of 2 have"));
  REQUIRE(cluster.await(server.call<&parallel::Server::join>("b", WorkerId{3})).ok());
  const auto first = cluster.await(pull("a"));
  REQUIRE(first.ok());
  parallel::Packed gradients{{ones({2})}, {}};
  REQUIRE(cluster.await(server.call<&parallel::Server::push>("a", first.value().stamp, gradients, 1.0)).ok());
  CHECK_THAT(refused(cluster.await(pull("a"))),
             Contains("Server::pull on w1 gave no answer within 10 s") &&
                 Contains("the pushes of step 0 under bsp: missing is trainer \"b\" on w3"));
}

namespace {

// Pulls inside a method.
struct Puller : Actor {
  explicit Puller(parallel::Served served) : client(std::move(served)) {}
  Task<void> pull() {
    const auto pulled = client.pull();
    (void)co_await pulled;
  }
  Task<void> push() {
    const Tensors gradients{ones({2})};
    const auto pushed = client.push(gradients);
    (void)co_await pushed;
  }
  Task<void> pull_by(RRef<Puller> other) {
    const auto pulled = other.call<&Puller::pull>();
    co_await pulled;
  }
  parallel::Client client;
  static constexpr auto remote = methods<&Puller::pull, &Puller::push, &Puller::pull_by>;
};

}  // namespace

TEST_CASE("a method that pulls names the trainers that are missing to its own caller, and that to its") {
  auto types = internal::parallel::server_actors();
  for (auto& type : hosting<Puller>()) types.push_back(std::move(type));
  SimulatedCluster cluster(6, 5, types);
  const Here here(internal::rref::RefTable::of(cluster.worker(0)));
  const parallel::Served served = parallel::serve(
      here, {"w1"}, {zeros({2})},
      {.options = {{"lr", 0.1}}, .policy = parallel::ServerPolicy::parse("bsp"), .trainers = 2});
  const auto late = [&](const auto& call) {
    const auto r = cluster.await(call);
    REQUIRE_FALSE(r.ok());
    CHECK(r.error().kind() == ErrorKind::deadline);
    return std::string(r.error().what());
  };
  const auto a = cluster.here(0).spawn<Puller>(2, served);
  CHECK_THAT(late(a.with_timeout(2s).call<&Puller::pull>()),
             Contains("Puller::pull on w2 gave no answer within 2 s") &&
                 Contains("Server::pull on w1. Of ") && Contains("Server::pull: troupe::parallel::Server#") &&
                 Contains("trainers to join: 1 of 2 have"));
  const auto b = cluster.here(0).spawn<Puller>(3, served), outer = cluster.here(0).spawn<Puller>(4, served);
  REQUIRE(cluster.await(b.call<&Puller::pull>()).ok());
  REQUIRE(cluster.await(a.call<&Puller::pull>()).ok());
  REQUIRE(cluster.await(a.call<&Puller::push>()).ok());
  const auto names_b = [](const std::string& text) {
    CHECK_THAT(text, Contains("the pushes of step 0 under bsp: missing is trainer \"") && Contains("on w3"));
  };
  names_b(late(a.with_timeout(2s).call<&Puller::pull>()));
  const std::string twice = late(outer.with_timeout(2s).call<&Puller::pull_by>(a));
  names_b(twice);
  CHECK_THAT(twice, Contains("Of Puller::pull: Puller#"));
}
