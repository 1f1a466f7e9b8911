// Servers with a backup, whose workers die: simulated, at every message.
#include <catch2/catch.hpp>

#include "parallel/server/served_table.h"
#include "parallel/server/table.h"
#include "rref/ref_table.h"
#include "tests/parallel/hands.h"
#include "tests/support/error_of.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;

namespace {

constexpr int kSteps = 4;

// A trainer that makes its steps by itself.
struct Walker : Actor {
  Walker(Served served, int64_t number) : client(std::move(served)), number(number) {}
  Tensors gradients(const Tensors& values) const {
    Tensors all;
    for (const Tensor& v : values) all.push_back(v * 0.1 + 0.01 * double(number + 1));
    return all;
  }
  Task<void> walk(bool both) {
    const auto first = client.pull();
    Tensors values = co_await first;
    for (int i = 0; i < kSteps; ++i) {
      if (both) {
        const auto next = client.push_pull(gradients(values), 1.0 + double(number));
        values = co_await next;
        continue;
      }
      const auto pushed = client.push(gradients(values), 1.0 + double(number));
      late += int64_t{(co_await pushed).late};
      if (i + 1 == kSteps) break;
      const auto next = client.pull();
      values = co_await next;
    }
  }
  Task<void> leave() {
    const auto left = client.leave();
    co_await left;
  }
  int64_t lates() { return late; }
  Client client;
  int64_t number, late = 0;
  static constexpr auto remote = methods<&Walker::walk, &Walker::leave, &Walker::lates>;
};

// The driver on w0, servers on w1, their backup on w2, trainers on w3 and w4.
struct BackedScene {
  explicit BackedScene(const std::string& policy, int64_t blocks = 2)
      : cluster(1, 5, hosting<Server, Table, Walker>(), {.timeout = 0s}) {
    cluster.network().set_faults({.delay = 1ms});
    ServerOptions options = with_policy(policy, 2);
    options.optimizer = "adam", options.backup = "w2";
    options.options = {{"lr", 0.1}};
    const Tensor start = ones({8});
    served = serve(here(), {"w1"}, {start}, options, {.bytes = 32 / blocks});
    for (int64_t i = 0; i < 2; ++i)
      walkers.push_back(cluster.here(0).spawn<Walker>(static_cast<size_t>(3 + i), served, i));
  }
  Here here() { return Here(internal::rref::RefTable::of(cluster.worker(0))); }
  // Both walk to the end; `victim` dies at the n-th event of that. False: it is over before.
  bool walk(bool both, const std::string& victim = "", int at = 0) {
    std::vector<Future<void>> walks;
    for (const auto& w : walkers) walks.push_back(w.call<&Walker::walk>(both));
    bool died = false;
    for (int event = 1; !walks[0].is_ready() || !walks[1].is_ready(); ++event) {
      if (event == at) cluster.network().crash(victim), died = true;
      if (!cluster.step()) break;
    }
    for (const auto& w : walks) {
      const auto result = cluster.await(w);
      INFO((result.ok() ? "" : result.error().what()));
      REQUIRE(result.ok());
    }
    return died;
  }
  std::vector<std::vector<float>> values() {
    std::vector<std::vector<float>> all;
    for (const Tensor& t : cluster.await(read(served)).value()) all.push_back(t.to_vector<float>());
    return all;
  }
  std::vector<ServerReport> reports() { return cluster.await(report(served)).value(); }
  SimulatedCluster cluster;
  Served served;
  std::vector<RRef<Walker>> walkers;
};

}  // namespace

TEST_CASE("a server with a backup dies at any message, and each push counts once") {
  const std::string policy = GENERATE("bsp", "ssp(1)", "async", "quorum(1)", "delayed");
  const bool both = GENERATE(false, true);
  CAPTURE(policy, both);
  BackedScene calm(policy);
  CHECK_FALSE(calm.walk(both));
  const auto expected = calm.values();
  const int64_t pushes = policy == "async" || policy == "ssp(1)" ? 2 * kSteps : kSteps;
  const auto version = [&](BackedScene& s) {
    int64_t all = 0;
    for (const ServerReport& r : s.reports()) all += r.version;
    return all;
  };
  if (policy == "bsp") REQUIRE(version(calm) == 2 * pushes);
  for (const std::string victim : {"w1", "w2"}) {
    int at = 1;
    for (;; ++at) {
      CAPTURE(victim, at);
      BackedScene s(policy);
      if (!s.walk(both, victim, at)) break;
      s.cluster.settle();
      if (policy == "bsp" || policy == "delayed") CHECK(s.values() == expected);
      if (policy != "quorum(1)") CHECK(version(s) == 2 * pushes);
      int64_t late = 0;
      for (const auto& w : s.walkers) {
        REQUIRE(s.cluster.await(w.call<&Walker::leave>()).ok());
        late += s.cluster.await(w.call<&Walker::lates>()).value();
      }
      CHECK((policy == "quorum(1)" || late == 0));
      for (const ServerReport& r : s.reports()) {
        CHECK(r.trainers.empty());
        CHECK_THAT(r.str(),
                   Contains(victim == "w1" ? "goes on for w1, which is lost" : "lost its backup on w2") ||
                       Contains("has a backup on w2"));
      }
    }
    CHECK(at > 40);
  }
}

TEST_CASE("a trainer that dies is lost once to a server and its backup") {
  for (int at = 1; at < 60; at += 3) {
    CAPTURE(at);
    BackedScene s("bsp");
    s.walk(false);  // both have joined
    const auto stays = s.walkers[0].call<&Walker::walk>(false);
    (void)s.walkers[1].call<&Walker::walk>(false);
    for (int event = 0; event < at; ++event) s.cluster.step();
    s.cluster.network().crash("w4");
    for (int event = 0; event < 9; ++event) s.cluster.step();
    s.cluster.network().crash("w1");
    const auto result = s.cluster.await(stays);
    INFO((result.ok() ? "" : result.error().what()));
    CHECK(result.ok());
    s.cluster.settle();
    for (const ServerReport& r : s.reports()) {
      CHECK(r.trainers.size() == 1);
      CHECK(r.lost == 1);
      CHECK(r.version == 2 * kSteps);
    }
  }
}

TEST_CASE("a backup that its server has lost, and gone on without, does not go on for it") {
  BackedScene s("bsp", 1);
  s.walk(false);
  s.cluster.network().set_faults("w1", "w2", {.drop = 1});  // the link breaks, and both live
  s.walk(false);
  CHECK_THAT(s.reports()[0].backup, Contains("has lost its backup on w2"));
  s.cluster.network().crash("w1");
  s.cluster.settle();
  const auto result = s.cluster.await(s.walkers[0].call<&Walker::walk>(false));
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().kind() == ErrorKind::failed);
  CHECK_THAT(result.error().what(), Contains("the backup on w2 lacks what w1 has done"));
}

TEST_CASE("gradients in a context that a lost server had are asked for again") {
  BackedScene s("async", 1);
  Client client(s.served, {.name = "here"});
  s.walkers.clear();
  const CallFrameScope on([&] {
    CallFrame at = frame();
    at.worker = &s.cluster.worker(0);
    return at;
  }());
  const auto step = [&](bool dies) {
    autograd::Context context(s.cluster.worker(0));
    const Tensors values = s.cluster.await(client.pull()).value();
    const Tensor loss = sum(values[0] * values[0]);
    const auto back = s.cluster.await(context.backward_async(loss));
    if (!back.ok()) throw back.error();
    if (dies) s.cluster.network().crash("w1"), s.cluster.settle();
    const auto pushed = s.cluster.await(client.push_context());
    if (!pushed.ok()) throw pushed.error();
  };
  const Error error = error_of([&] { step(true); });
  CHECK(error.kind() == ErrorKind::disconnected);
  step(false);
  CHECK(s.reports()[0].version == 1);
}

TEST_CASE("rows of a table with a backup are there when its server is lost") {
  BackedScene s("async", 1);
  ServerOptions options = with_policy("async");
  options.backup = "w2";
  const auto table = serve_table(s.here(), {"w1"}, 10, 2, options);
  TableClient client(table);
  const Tensor ids = tensor(std::vector<int64_t>{1, 3});
  (void)s.cluster.await(client.pull(ids)).value();
  (void)s.cluster.await(client.push(ids, ones({2, 2}))).value();
  const auto before = s.cluster.await(read(table, ids)).value().to_vector<float>();
  s.cluster.network().crash("w1");
  s.cluster.settle();
  CHECK(s.cluster.await(read(table, ids)).value().to_vector<float>() == before);
  (void)s.cluster.await(client.pull(ids)).value();
  (void)s.cluster.await(client.push(ids, ones({2, 2}))).value();
  CHECK(s.cluster.await(read(table, ids)).value().to_vector<float>()[0] == before[0] - 0.5F);
}

TEST_CASE("a backup is on another worker than the servers") {
  BackedScene s("async", 1);
  ServerOptions options = with_policy("async");
  options.backup = "w1";
  CHECK_THAT(error_of([&] { serve(s.here(), {"w0", "w1"}, {ones({1})}, options); }).what(),
             Contains("a backup on w1, which has servers itself"));
  CHECK_THAT(error_of([&] { serve_table(s.here(), {"w1"}, 4, 2, options); }).what(),
             Contains("[table] a backup on w1"));
  options.backup = "w9";
  CHECK_THAT(error_of([&] { serve(s.here(), {"w1"}, {ones({1})}, options); }).what(), Contains("w9"));
}
