// Barriers and gathers: the leader's state machine in any order, then workers.
#include <catch2/catch.hpp>

#include <random>

#include "actors/cluster/all_gather.h"
#include "tests/support/error_of.h"
#include "tests/support/sim_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;
using Catch::Contains;
using internal::actors::AllGather;
using testing::error_of;

TEST_CASE("the n-th arrivals of all members are a round, in any order") {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const WorkerId count = 1 + seed % 5;
    std::set<WorkerId> members;
    std::vector<WorkerId> arrivals;
    for (WorkerId w = 0; w < count; ++w) {
      members.insert(w * 3);
      arrivals.insert(arrivals.end(), 4, w * 3);
    }
    std::shuffle(arrivals.begin(), arrivals.end(), random);
    AllGather gathering(members);
    std::map<WorkerId, int64_t> came;
    int64_t rounds = 0;
    for (const WorkerId w : arrivals) {
      const int64_t turn = came[w]++;
      const auto round = gathering.arrive(w, w * 100 + static_cast<uint64_t>(turn), Value(turn));
      const bool last =
          std::all_of(members.begin(), members.end(), [&](WorkerId m) { return came[m] > rounds; });
      REQUIRE(round.has_value() == last);
      if (!round) continue;
      REQUIRE(round->values.size() == count);
      for (const Value& v : round->values) REQUIRE(*v.get_if<int64_t>() == rounds);
      ++rounds;
    }
    CHECK(rounds == 4);
    CHECK(gathering.empty());
  }
}

TEST_CASE("who gives up hears who is missing from its round, and a lost member ends all waiting") {
  AllGather gathering({0, 1, 2});
  CHECK_FALSE(gathering.arrive(0, 1, {}));
  CHECK_FALSE(gathering.arrive(0, 2, {}));
  CHECK_FALSE(gathering.arrive(1, 11, {}));
  CHECK(gathering.withdraw(0, 2) == std::vector<WorkerId>{1, 2});
  CHECK(gathering.withdraw(1, 11) == std::vector<WorkerId>{2});
  CHECK(gathering.withdraw(1, 11).empty());
  CHECK_FALSE(gathering.arrive(2, 21, {}));
  CHECK(gathering.lost(7).empty());
  CHECK(gathering.lost(1) == std::vector<AllGather::Ticket>{1, 21});
  CHECK(gathering.empty());
  CHECK(error_of([&] { gathering.arrive(5, 51, {}); }).kind() == ErrorKind::invalid);
}

namespace {

using Ids = std::vector<WorkerId>;
std::atomic<int> inside{0};

internal::actors::Worker& this_worker() { return *frame().worker; }

struct Member : Actor {
  Task<std::vector<int>> share(std::string name, Ids members, int value, double seconds) {
    const auto timeout = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
    const std::set<WorkerId> all(members.begin(), members.end());
    const auto values =
        co_await internal::actors::gather(this_worker(), name, all, Value(int64_t{value}), timeout);
    std::vector<int> out;
    for (const Value& v : values) out.push_back(internal::from_value<int>(v));
    co_return out;
  }
  // Counts in, meets, and returns how many had come in.
  Task<int> meet(std::string name, Ids members) {
    ++inside;
    const std::set<WorkerId> all(members.begin(), members.end());
    co_await internal::actors::barrier(this_worker(), name, all);
    co_return inside.load();
  }
  static constexpr auto remote = methods<&Member::share, &Member::meet>;
};

}  // namespace

TEST_CASE("barriers over all workers, disjoint subsets and singletons, three at once on every worker") {
  const std::vector<std::vector<std::vector<WorkerId>>> groupings = {
      {{0, 1, 2, 3}}, {{0, 2}, {1, 3}}, {{0}, {1}, {2}, {3}}, {{0, 1, 2}}};
  for (const auto& groups : groupings) {
    auto cluster = Cluster::in_process(4, hosting<Member>());
    inside = 0;
    int members = 0;
    std::vector<Future<int>> done;
    std::vector<RRef<Member>> actors;
    for (const auto& group : groups)
      for (const WorkerId w : group)
        for (int turn = 0; turn < 3; ++turn) {  // each of its own, as three threads would
          ++members;
          actors.push_back(cluster->spawn<Member>(w));
          done.push_back(actors.back().call<&Member::meet>("here", group));
        }
    for (const auto& d : done) CHECK(d.get() >= 1);
    CHECK(inside == members);
  }
}

TEST_CASE("nobody passes a barrier before all have come") {
  auto cluster = Cluster::in_process(3, hosting<Member>());
  std::vector<RRef<Member>> members;
  for (WorkerId w = 0; w < 3; ++w) members.push_back(cluster->spawn<Member>(w));
  for (int round = 1; round <= 20; ++round) {
    inside = 0;
    std::vector<Future<int>> done;
    for (int w = 0; w < 3; ++w)  // another one comes last in every round
      done.push_back(members[static_cast<size_t>((w + round) % 3)].call<&Member::meet>("door", Ids{0, 1, 2}));
    for (const auto& d : done) CHECK(d.get() == 3);
  }
}

TEST_CASE("in a gather every worker gets what all have given") {
  auto cluster = Cluster::in_process(4, hosting<Member>());
  std::vector<RRef<Member>> members;
  for (WorkerId w = 0; w < 4; ++w) members.push_back(cluster->spawn<Member>(w));
  for (int round = 0; round < 5; ++round) {
    std::vector<Future<std::vector<int>>> got;
    for (int w = 3; w >= 0; --w)
      got.push_back(
          members[static_cast<size_t>(w)].call<&Member::share>("ids", Ids{0, 1, 2, 3}, 10 * round + w, 60.0));
    for (const auto& g : got)
      CHECK(g.get() == std::vector<int>{10 * round, 10 * round + 1, 10 * round + 2, 10 * round + 3});
  }
  CHECK_THAT(error_of([&] {
               members[0].call<&Member::share>("ids", Ids{1, 2}, 0, 1.0).get();
             }).what(),
             Contains("worker w0 is no member of the gathering \"ids\""));
}

TEST_CASE(
    "a gather that is not complete in time names who is missing to all that wait, and the next one works") {
  testing::SimCluster cluster(5, 4, hosting<Member>());
  std::vector<RRef<Member>> members;
  for (size_t w = 0; w < 4; ++w) members.push_back(cluster.spawn<Member>(0, w));
  std::vector<Future<std::vector<int>>> got;
  for (const size_t w : {1, 3})
    got.push_back(members[w].call<&Member::share>("ids", Ids{0, 1, 2, 3}, 0, 2.0));
  for (const auto& g : got) {
    const auto r = cluster.await(g);
    REQUIRE_FALSE(r.ok());
    CHECK(r.error().kind() == ErrorKind::deadline);
    CHECK_THAT(r.error().what(), Contains("missing: w0, ") && Contains("w2"));  // and who gave up before
  }
  got.clear();
  for (size_t w = 0; w < 4; ++w)
    got.push_back(members[w].call<&Member::share>("ids", Ids{0, 1, 2, 3}, static_cast<int>(w), 2.0));
  for (const auto& g : got) CHECK(cluster.await(g).value() == std::vector<int>{0, 1, 2, 3});
}

TEST_CASE("a member that dies ends the gather for all that wait, and is named") {
  testing::SimCluster cluster(5, 4, hosting<Member>());
  std::vector<RRef<Member>> members;
  for (size_t w = 0; w < 4; ++w) members.push_back(cluster.spawn<Member>(0, w));
  std::vector<Future<std::vector<int>>> got;
  for (const size_t w : {1, 3}) got.push_back(members[w].call<&Member::share>("ids", Ids{1, 2, 3}, 0, 50.0));
  cluster.network().schedule(std::chrono::seconds(1), [&] { cluster.network().crash("w2"); });
  for (const auto& g : got) {
    const auto r = cluster.await(g);
    REQUIRE_FALSE(r.ok());
    CHECK(r.error().kind() == ErrorKind::disconnected);
    CHECK(r.error().worker() == "w2");
  }
}
