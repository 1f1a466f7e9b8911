// A call that is refused on one rank alone counts as one of its calls, and fails on all of them at once.
#include <functional>
#include <map>

#include "actors/worker/worker.h"
#include "tests/contract/groups.h"
#include "troupe/simulated/simulated_cluster.h"

using namespace troupe;
using namespace troupe::testing;
using namespace std::chrono_literals;
using Catch::Contains;

namespace {

// Of any result.
struct Over : Future<void> {
  template <class T>
  Over(const Future<T>& f) : Future<void>(f.then([](const T&) {})) {}
  Over(const Future<void>& f) : Future<void>(f) {}
};
using Call = std::function<Over(const Group&, Tensor, const CollectiveOptions&)>;

// Operations that one rank calls wrongly: with what comes of its tensor, its root or its options.
struct Wrong {
  std::string what, text;
  Call well, wrong;
};

CollectiveOptions with_rows(CollectiveOptions o, std::vector<int64_t> rows) {
  o.rows = std::move(rows);
  return o;
}
CollectiveOptions with_way(CollectiveOptions o, std::string way) {
  o.way = std::move(way);
  return o;
}
CollectiveOptions with_op(CollectiveOptions o, ReduceOp op) {
  o.op = op;
  return o;
}

std::vector<Wrong> wrong_calls() {
  using G = const Group&;
  using O = const CollectiveOptions&;
  const Call all_reduce = [](G g, Tensor x, O o) { return g.all_reduce(x, o); };
  const Call reduce = [](G g, Tensor x, O o) { return g.reduce(x, 0, o); };
  const Call reduce_scatter = [](G g, Tensor x, O o) { return g.reduce_scatter(x, o); };
  const Call broadcast = [](G g, Tensor x, O o) { return g.broadcast(x, 0, o); };
  const Call scatter = [](G g, Tensor x, O o) { return g.scatter(x, 0, o); };
  const Call gather = [](G g, Tensor x, O o) { return g.gather(x, 0, o); };
  const Call all_gather = [](G g, Tensor x, O o) { return g.all_gather(x, o); };
  const Call all_to_all = [](G g, Tensor x, O o) { return g.all_to_all(Tensors(3, x), o); };
  const Call barrier = [](G g, Tensor, O o) { return g.barrier(o); };
  const Call told = [](G g, Tensor x, O o) { return g.all_gather(x, with_rows(o, {3, 3, 3})); };
  return {
      {"undefined", "undefined", all_reduce, [](G g, Tensor, O o) { return g.all_reduce(Tensor(), o); }},
      {"an empty list", "list is empty", all_reduce,
       [](G g, Tensor, O o) { return g.all_reduce(Tensors(), o); }},
      {"a gradient", "no autograd::Context is active", all_reduce,
       [](G g, Tensor x, O o) { return g.all_reduce(x.clone_data().requires_grad_(), o); }},
      {"a way", "not done by \"tree\"", all_reduce,
       [](G g, Tensor x, O o) { return g.all_reduce(x, with_way(o, "tree")); }},
      {"a mean of integers", "a mean of int64", all_reduce,
       [](G g, Tensor x, O o) { return g.all_reduce(x.to(int64), with_op(o, ReduceOp::mean)); }},
      {"rows of a sum", "leave out .rows", all_reduce,
       [](G g, Tensor x, O o) { return g.all_reduce(x, with_rows(o, {1, 1, 1})); }},
      {"a root", "root is rank 3", reduce, [](G g, Tensor x, O o) { return g.reduce(x, 3, o); }},
      {"rows", ".rows = {1, 1, 2}", reduce_scatter,
       [](G g, Tensor x, O o) { return g.reduce_scatter(x, with_rows(o, {1, 1, 2})); }},
      {"a root", "root is rank 3", broadcast, [](G g, Tensor x, O o) { return g.broadcast(x, 3, o); }},
      {"a root", "root is rank 3", scatter, [](G g, Tensor x, O o) { return g.scatter(x, 3, o); }},
      {"a reduction", "nothing is reduced", gather,
       [](G g, Tensor x, O o) { return g.gather(x, 0, with_op(o, ReduceOp::max)); }},
      {"undefined", "undefined", gather, [](G g, Tensor, O o) { return g.gather(Tensor(), 0, o); }},
      {"rows", "rank 1 brings 3 rows", told,
       [](G g, Tensor x, O o) { return g.all_gather(x, with_rows(o, {2, 2, 2})); }},
      {"undefined", "undefined", all_gather, [](G g, Tensor, O o) { return g.all_gather(Tensor(), o); }},
      {"too few", "1 tensors for 3 ranks", all_to_all,
       [](G g, Tensor x, O o) { return g.all_to_all(Tensors{x}, o); }},
      {"a way", "not done by \"ring\"", barrier,
       [](G g, Tensor, O o) { return g.barrier(with_way(o, "ring")); }},
  };
}

struct Caller : Actor {
  // One of a first step, which rank 1 calls wrongly and all catch; then sums of two steps.
  Task<std::pair<std::string, Tensors>> run(Group group, int64_t number, CollectiveOptions options) {
    const Wrong call = wrong_calls().at(static_cast<size_t>(number));
    std::string text;
    try {
      const Future<void> began = (group.rank() == 1 ? call.wrong : call.well)(group, ones({3, 2}), options);
      co_await began;
    } catch (const Error& e) {
      text = e.what();
    }
    Tensors sums;
    for (int64_t step = 1; step <= 2; ++step) {
      if (options.single_use) options.tag += "'";
      const auto summing = group.all_reduce(full({2}, static_cast<double>(step)), options);
      sums.push_back(co_await summing);
      if (options.single_use) options.tag += "'";
      const auto gathering = group.all_gather(full({1}, static_cast<double>(step)), options);
      sums.push_back(co_await gathering);
    }
    co_return std::pair(text, sums);
  }
  static constexpr auto remote = methods<&Caller::run>;
};

void check_all(SimulatedCluster& cluster, const std::vector<RRef<Caller>>& members,
               const std::function<Group(std::string)>& group_of) {
  const auto calls = wrong_calls();
  for (const CollectiveOptions& options : {CollectiveOptions{}, CollectiveOptions{.tag = "t"},
                                           CollectiveOptions{.tag = "u", .single_use = true}})
    for (size_t i = 0; i < calls.size(); ++i) {
      CAPTURE(calls[i].what, calls[i].text, options.tag);
      const auto start = cluster.now();
      const Group group = group_of(options.tag + std::to_string(i));
      std::vector<Future<std::pair<std::string, Tensors>>> all;
      for (const auto& m : members)
        all.push_back(m.call<&Caller::run>(group, static_cast<int64_t>(i), options));
      for (size_t r = 0; r < 3; ++r) {
        const auto result = cluster.await(all[r]);
        REQUIRE(result.ok());
        const auto& [text, sums] = result.value();
        CHECK_THAT(text, Contains(calls[i].text));
        if (r != 1) CHECK_THAT(text, Contains(" rank 1 (" + group.label(1) + ")"));
        REQUIRE(sums.size() == 4);
        for (size_t step = 0; step < 2; ++step) {
          CHECK(sums[2 * step].equal(full({2}, 3.0 * static_cast<double>(step + 1))));
          CHECK(sums[2 * step + 1].equal(full({3}, static_cast<double>(step + 1))));
        }
      }
      CHECK(cluster.now() - start < 1s);
    }
  cluster.settle();
  for (size_t w = 0; w < 3; ++w)
    for (const char* metric : {"collectives", "early_collectives"})
      CHECK(cluster.worker(w).metrics().at(metric) == 0);
}

}  // namespace

TEST_CASE("what is refused on one rank fails on all at once, and the next calls are those of one step") {
  SimulatedCluster cluster(1, 3, hosting<Caller>());
  std::vector<RRef<Caller>> members;
  for (size_t w = 0; w < 3; ++w) members.push_back(cluster.here(0).spawn<Caller>(w));
  SECTION("of workers") {
    check_all(cluster, members,
              [&](std::string name) { return Group(cluster.worker(0), {"w0", "w1", "w2"}, name); });
  }
  SECTION("of actors") {
    check_all(cluster, members, [&](std::string name) { return Group(members, name); });
  }
}

TEST_CASE("a deadline names the operation that was called, whatever is done for it first") {
  for (const bool cancels : {false, true}) {
    SimulatedCluster cluster(2, 3, hosting<RankActor>());
    std::vector<RRef<RankActor>> members;
    for (size_t w = 0; w < 3; ++w) members.push_back(cluster.here(0).spawn<RankActor>(w));
    for (const std::string what : {"all_reduce", "reduce", "reduce_scatter", "broadcast", "scatter", "gather",
                                   "all_gather", "all_to_all", "barrier"}) {
      CAPTURE(what);
      const Group group(members, what);
      const Tensors xs = what == "all_to_all" ? Tensors(3, ones({2})) : Tensors{ones({2})};
      std::vector<Future<Tensors>> all;
      for (size_t r = 0; r < 2; ++r)  // the third does not come
        all.push_back(members[r].call<&RankActor::run>(group, what, xs, int64_t{1},
                                                       CollectiveOptions{.tag = "t", .timeout = 5s}));
      if (cancels) {
        cluster.network().run(100ms);
        all[0].cancel();
        all.erase(all.begin());
      }
      for (const auto& f : all) {
        const auto result = cluster.await(f);
        REQUIRE_FALSE(result.ok());
        CHECK(result.error().kind() == (cancels ? ErrorKind::cancelled : ErrorKind::deadline));
        CHECK_THAT(result.error().what(), Contains("[" + what + "] use 0 of tag \"t\" ") &&
                                              Contains(cancels ? " rank 0 (" : " has not called it"));
      }
    }
  }
}
