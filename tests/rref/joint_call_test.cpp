// Calls of several actors that belong together: their parts travel as other calls do, and the workers of all
// hear when one fails.
#include "rref/joint_call.h"
#include "actors/worker/worker.h"

#include <catch2/catch.hpp>

#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace std::chrono_literals;
using internal::rref::JointCall;
using internal::rref::JointCalls;
using internal::rref::JointNumber;

namespace {

std::map<int64_t, Promise<void>> gates;  // that the test opens

struct Part : Actor {
  Task<int64_t> waits(int64_t gate) {
    co_await gates[gate].future();
    co_return gate + 1;
  }
  Task<int64_t> throws(int64_t gate) {
    co_await gates[gate].future();
    throw_error(ErrorKind::failed, "no luck");
    co_return 0;
  }
  int64_t sum(int64_t x, int64_t y) { return x + y; }
  static constexpr auto remote = methods<&Part::waits, &Part::throws, &Part::sum>;
};

struct Workers {
  Workers() : cluster(1, 4, hosting<Part>()) {
    gates.clear();
    for (size_t w = 0; w < 4; ++w) parts.push_back(cluster.here(0).spawn<Part>(w));
    for (const auto& p : parts) (void)cluster.await(p.ready());
  }
  ~Workers() { gates.clear(); }
  template <auto M>
  Future<int64_t> call(JointCall& joint, size_t i, int64_t gate) {
    return joint.part(
        parts[i], [&](uint64_t number) { return internal::rref::within(parts[i], number).call<M>(gate); });
  }
  void pause() {
    bool over = false;
    cluster.network().schedule(1s, [&] { over = true; });
    while (!over) cluster.step();
  }
  int64_t metric(const char* name) {
    int64_t n = 0;
    for (size_t w = 0; w < 4; ++w) n += cluster.worker(w).metrics()[name];
    return n;
  }
  SimulatedCluster cluster;
  std::vector<RRef<Part>> parts;
};

}  // namespace

TEST_CASE("numbers of joint calls say whether they are of all, and how manieth of their series they are") {
  for (const bool all : {false, true})
    for (const uint64_t series : {uint64_t{1}, uint64_t{77}, (uint64_t{1} << 31) - 1})
      for (const uint64_t count : {uint64_t{0}, uint64_t{5}, (uint64_t{1} << 32) - 1}) {
        const JointNumber n = JointNumber::of(JointNumber{all, series, count}.number());
        CHECK((n.all == all && n.series == series && n.count == count));
      }
}

TEST_CASE("parts of a joint call go straight to who uses their results, and end when nobody wants these") {
  Workers w;
  JointCalls calls(w.parts[0]);
  JointCall joint = calls.all(internal::net::method_id("waits"));
  auto first = w.call<&Part::waits>(joint, 1, 1), second = w.call<&Part::waits>(joint, 2, 2);
  const auto sum = w.parts[3].call<&Part::sum>(std::move(first), std::move(second));
  auto unwanted = w.call<&Part::waits>(joint, 3, 3);
  w.pause();
  unwanted = {};
  w.pause();
  gates[1].set(), gates[2].set();
  CHECK(w.cluster.await(sum).value() == 5);
  CHECK(w.metric("arguments_sent") == 2);
  w.pause();
  for (const char* what : {"late_calls", "pending_calls", "unanswered_calls"}) CHECK(w.metric(what) == 0);
}

TEST_CASE(
    "parts that fail are heard of once, also by those that are called afterwards, and the others end well") {
  Workers w;
  JointCalls calls(w.parts[0]);
  JointCall joint = calls.some(internal::net::method_id("throws"));
  const auto sent = [&] { return w.cluster.network().counters("w0", "w3").messages; };
  const auto first = w.call<&Part::throws>(joint, 1, 1), second = w.call<&Part::throws>(joint, 2, 1),
             third = w.call<&Part::waits>(joint, 3, 2);
  w.pause();
  const auto before = sent();
  gates[1].set();
  CHECK_FALSE(w.cluster.await(first).ok());
  CHECK_FALSE(w.cluster.await(second).ok());
  w.pause();
  CHECK(sent() == before + 1);
  const auto late = w.call<&Part::waits>(joint, 3, 2);
  CHECK(sent() == before + 3);  // the call, and that another one has failed
  gates[2].set();
  CHECK(w.cluster.await(third).value() == 3);
  CHECK(w.cluster.await(late).value() == 3);
}
