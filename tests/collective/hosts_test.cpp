// Groups whose members share hosts, on a simulated network: what goes between the hosts, the results, and
// members that die, are late or cancel.
#include <catch2/catch.hpp>

#include <cstdio>
#include <set>

#include "actors/worker/worker.h"
#include "collective/schedule/choice.h"
#include "troupe/groups.h"
#include "troupe/simulated/simulated_cluster.h"
#include "troupe/troupe.h"

using namespace troupe;
using namespace std::chrono_literals;
using Catch::Contains;
using internal::collective::Collective;
using internal::collective::HostCounts;
using internal::collective::leaves_host;
using internal::collective::order_of_sum;
using internal::collective::Way;

namespace {

Tensor of_rank(size_t rank, int64_t elements) {
  Generator random(rank + 1);
  return rand({elements}, random) - 0.5;
}

// It has its tensor before, and keeps the result: nothing else is sent meanwhile.
struct Summer : Actor {
  Task<bool> run(Group group, std::string what, int64_t elements, int64_t root, CollectiveOptions options) {
    const auto r = static_cast<size_t>(root);
    const Tensor x = of_rank(group.rank(), elements);
    Future<Tensor> future;
    if (what == "all_reduce") future = group.all_reduce(x, options);
    if (what == "reduce") future = group.reduce(x, r, options);
    if (what == "reduce_scatter") future = group.reduce_scatter(x, options);
    if (what == "broadcast") future = group.broadcast(x, r, options);
    if (what == "all_gather") {
      options.rows.assign(group.size(), elements);  // which the members need not tell each other
      future = group.all_gather(x, options);
    }
    result = co_await future;
    co_return true;
  }
  Task<bool> cancelled(Group group, int64_t elements) {
    const auto summing = group.all_reduce(of_rank(group.rank(), elements), {.tag = "cancelled"});
    summing.cancel();
    const Tensor sum = co_await summing;
    co_return true;
  }
  Task<std::string> tuned(Group group) {
    const std::string text = co_await group.tune();
    co_return text;
  }
  std::string ways(Group group, int64_t bytes) { return group.print(static_cast<size_t>(bytes)); }
  Tensor kept() { return result; }
  Tensor result;
  static constexpr auto remote =
      methods<&Summer::run, &Summer::cancelled, &Summer::tuned, &Summer::ways, &Summer::kept>;
};

// Workers on hosts of so many, and a group of an actor on each.
struct OnHosts {
  explicit OnHosts(const std::vector<size_t>& ranks, uint64_t seed = 1)
      : hosts(names(ranks)),
        sim(seed, static_cast<int>(hosts.size()), hosting<Summer>(), {.hosts = hosts}),
        on{ranks.size(), std::ranges::min(ranks), std::ranges::max(ranks)} {
    for (size_t r = 0; r < size(); ++r) members.push_back(sim.here(0).spawn<Summer>(r));
    group = Group(members);
    sim.settle();
  }
  static std::vector<std::string> names(const std::vector<size_t>& ranks) {
    std::vector<std::string> all;
    for (size_t h = 0; h < ranks.size(); ++h) all.insert(all.end(), ranks[h], "host " + std::to_string(h));
    return all;
  }
  size_t size() const { return hosts.size(); }
  Future<bool> call(size_t r, const std::string& what, int64_t elements, size_t root = 0,
                    const CollectiveOptions& options = {}) {
    return members[r].call<&Summer::run>(group, what, elements, static_cast<int64_t>(root), options);
  }
  std::vector<Future<bool>> call_all(const std::string& what, int64_t elements, size_t root = 0,
                                     const CollectiveOptions& options = {}) {
    std::vector<Future<bool>> all;
    for (size_t r = 0; r < size(); ++r) all.push_back(call(r, what, elements, root, options));
    return all;
  }
  std::vector<Tensor> run(const std::string& what, int64_t elements, size_t root = 0,
                          const CollectiveOptions& options = {}) {
    for (const auto& f : call_all(what, elements, root, options)) CHECK(sim.await(f).value());
    sim.settle();
    return kept();
  }
  std::vector<Tensor> kept() {
    std::vector<Tensor> all;
    for (const auto& m : members) all.push_back(sim.await(m.call<&Summer::kept>()).value());
    return all;
  }
  // What each host has sent to the others: all messages, and elements of operations.
  struct Sent {
    std::map<std::string, double> on_links, elements;
  };
  Sent sent() {
    Sent all;
    for (size_t a = 0; a < size(); ++a) {
      all.elements[hosts[a]] +=
          static_cast<double>(sim.worker(a).metrics().at("collective_bytes_between_hosts_sent"));
      for (size_t b = 0; b < size(); ++b)
        if (hosts[a] != hosts[b])
          all.on_links[hosts[a]] += static_cast<double>(
              sim.network().counters("w" + std::to_string(a), "w" + std::to_string(b)).bytes);
    }
    return all;
  }

  const std::vector<std::string> hosts;
  SimulatedCluster sim;
  const HostCounts on;
  std::vector<RRef<Summer>> members;
  Group group;
};

// First the ranks of each host, then hosts.
Tensor sum_by_hosts(const std::vector<std::string>& hosts, int64_t elements) {
  std::map<std::string, std::vector<Tensor>> on;
  for (size_t r = 0; r < hosts.size(); ++r) on[hosts[r]].push_back(of_rank(r, elements));
  const auto add_up = [](std::vector<Tensor>& xs) {
    order_of_sum(xs.size(), [&](size_t a, size_t b) { xs[a] = xs[a] + xs[b]; });
    return xs[0];
  };
  std::vector<Tensor> all;
  for (auto& [host, xs] : on) all.push_back(add_up(xs));
  return add_up(all);
}

const std::vector<std::vector<size_t>> kRanks = {{4, 4}, {2, 2, 2}, {3, 1, 2}, {1, 5}};
constexpr int64_t kMany = 300'000;

}  // namespace

TEST_CASE("between hosts an operation sends what its formula says, and gives what one host would") {
  for (const auto& ranks : kRanks) {
    CAPTURE(ranks);
    OnHosts at(ranks);
    const size_t n = at.size(), root = n - 1;
    const Tensor sum = sum_by_hosts(at.hosts, kMany);
    Tensors all;
    for (size_t r = 0; r < n; ++r) all.push_back(of_rank(r, kMany));
    const Tensor gathered = ops::cat(all, 0);
    for (const Collective c : {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter,
                               Collective::broadcast, Collective::all_gather}) {
      const std::string what(name(c));
      CAPTURE(what);
      const auto before = at.sent();
      for (const auto& f : at.call_all(what, kMany, root)) CHECK(at.sim.await(f).value());
      at.sim.settle();
      const auto after = at.sent();
      double on_links = 0, elements = 0;
      for (const auto& [host, bytes] : after.on_links)
        on_links = std::max(on_links, bytes - before.on_links.at(host));
      for (const auto& [host, bytes] : after.elements)
        elements = std::max(elements, bytes - before.elements.at(host));
      const double bytes = kMany * 4.0 * (c == Collective::all_gather ? static_cast<double>(n) : 1.0);
      const double formula = leaves_host(c, Way::hierarchical, n, bytes, at.on);
      CHECK(elements == Approx(formula).epsilon(0.05));
      CHECK(on_links == Approx(formula).epsilon(0.05));

      const std::vector<Tensor> results = at.kept();
      int64_t from = 0;
      for (size_t r = 0; r < n; ++r) {
        const Tensor& x = results[r];
        if (c == Collective::all_reduce) CHECK(bit_equal(x, sum));
        if (c == Collective::reduce) CHECK(x.defined() == (r == root));
        if (c == Collective::reduce && r == root) CHECK(bit_equal(x, sum));
        if (c == Collective::broadcast) CHECK(bit_equal(x, all[root]));
        if (c == Collective::all_gather) CHECK(bit_equal(x, gathered));
        if (c == Collective::reduce_scatter) {
          CHECK(allclose(x, sum.slice(0, from, from + x.size(0)), 1e-5, 1e-5));
          from += x.size(0);
        }
      }
      if (c == Collective::reduce_scatter) CHECK(from == kMany);
    }
  }
}

TEST_CASE("means, least and largest are those of all hosts' members") {
  for (const auto& ranks : kRanks) {
    OnHosts at(ranks);
    const size_t n = at.size();
    Tensor sum = of_rank(0, kMany).to(float64), least = sum, most = sum;
    for (size_t r = 1; r < n; ++r) {
      const Tensor x = of_rank(r, kMany).to(float64);
      sum = sum + x, least = ops::minimum(least, x), most = ops::maximum(most, x);
    }
    for (const char* what : {"all_reduce", "reduce_scatter"})
      for (const ReduceOp op : {ReduceOp::mean, ReduceOp::min, ReduceOp::max}) {
        CAPTURE(ranks, what, static_cast<int>(op));
        const Tensor right = op == ReduceOp::mean  ? sum / static_cast<double>(n)
                             : op == ReduceOp::min ? least
                                                   : most;
        int64_t from = 0;
        for (const Tensor& x : at.run(what, kMany, 0, {.op = op})) {
          if (x.size(0) == kMany) from = 0;
          CHECK(allclose(x.to(float64), right.slice(0, from, from + x.size(0)), 1e-5, 1e-5));
          from += x.size(0);
        }
      }
  }
}

TEST_CASE("a member that comes late, or cancels, is named on all hosts, and the next operation goes well") {
  OnHosts at({3, 1, 2});
  std::vector<Future<bool>> all;
  for (size_t r = 0; r < at.size(); ++r)
    if (r != 4) all.push_back(at.call(r, "all_reduce", kMany, 0, {.tag = "late", .timeout = 5s}));
  for (const auto& f : all) {
    const auto result = at.sim.await(f);
    REQUIRE(!result.ok());
    CHECK(result.error().kind() == ErrorKind::deadline);
    CHECK_THAT(result.error().what(), Contains("rank 4"));
  }
  all.clear();
  for (size_t r = 0; r < at.size(); ++r)
    all.push_back(r == 1 ? at.members[r].call<&Summer::cancelled>(at.group, kMany)
                         : at.call(r, "all_reduce", kMany, 0, {.tag = "cancelled"}));
  for (const auto& f : all) {
    const auto result = at.sim.await(f);
    REQUIRE(!result.ok());
    CHECK(result.error().kind() == ErrorKind::cancelled);
  }
  const Tensor sum = sum_by_hosts(at.hosts, kMany);
  for (const Tensor& x : at.run("all_reduce", kMany)) CHECK(bit_equal(x, sum));
}

TEST_CASE("a member that dies at any moment ends the operation on all hosts, or it was over") {
  const auto whats = {"all_reduce", "reduce", "reduce_scatter", "broadcast", "all_gather"};
  size_t failed = 0, went_well = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    OnHosts at(kRanks[seed % kRanks.size()], seed);
    Generator random(seed);
    const size_t dead = 1 + random.below(at.size() - 1);
    const std::string what = std::data(whats)[seed % whats.size()];
    const auto all = at.call_all(what, 30'000, 0);
    uint64_t after = random.below(250);
    while (after-- && at.sim.step()) {
    }
    at.sim.network().crash("w" + std::to_string(dead));
    for (size_t r = 0; r < at.size(); ++r) {
      const auto result = at.sim.await(all[r]);
      if (result.ok()) {
        ++went_well;
        continue;
      }
      ++failed;
      CAPTURE(seed, what, r, dead, result.error().what());
      CHECK(result.error().kind() == ErrorKind::disconnected);
      CHECK(result.error().worker() == "w" + std::to_string(dead));
    }
  }
  CHECK(failed > 60);
  CHECK(went_well > 0);
}

TEST_CASE("a group says how many hosts it has, and that they are taken into account") {
  OnHosts at({2, 2});
  CHECK(at.group.hosts() == 2);
  CHECK(at.group.subset({0, 1}, "one host").hosts() == 1);
  CHECK(at.group.subset({2, 3}, "the other").hosts() == 1);
  CHECK_THAT(at.group.print(1 << 20),
             Contains("all_reduce by hierarchical: 1 MiB go between hosts as seldom as they can") &&
                 Contains("all_to_all by direct") && Contains("Ways: direct, ring, hierarchical"));
}

TEST_CASE("a group that is tuned knows its links, once, and goes by them") {
  for (const auto& ranks : {std::vector<size_t>{4, 4}, {3, 1, 2}}) {
    OnHosts at(ranks);
    CAPTURE(ranks);
    for (size_t a = 0; a < at.size(); ++a)
      for (size_t b = 0; b < at.size(); ++b)
        if (a != b)
          at.sim.network().set_faults("w" + std::to_string(a), "w" + std::to_string(b),
                                      at.hosts[a] == at.hosts[b]
                                          ? internal::net::Faults{.delay = 5us, .bytes_per_second = 5e9}
                                          : internal::net::Faults{.delay = 200us, .bytes_per_second = 1e8});
    const auto tune = [&] {
      std::vector<Future<std::string>> all;
      for (const auto& m : at.members) all.push_back(m.call<&Summer::tuned>(at.group));
      std::set<std::string> texts;
      for (const auto& f : all) texts.insert(at.sim.await(f).value());
      at.sim.settle();
      CHECK(texts.size() == 1);
      return *texts.begin();
    };
    const auto before = at.sent();
    const std::string text = tune();
    double far_round = 0, far_rate = 0, near_round = 0, near_rate = 0;
    REQUIRE(std::sscanf(text.c_str(), "between hosts %lf us and %lf GB/s, within a host %lf us and %lf GB/s",
                        &far_round, &far_rate, &near_round, &near_rate) == 4);
    // A round is a message's delay, and what it takes to be sent. Each pair of workers has a link of its own.
    INFO(text);
    CHECK(far_round > 200);
    CHECK(far_round < 250);
    CHECK(near_round > 5);
    CHECK(near_round < 10);
    CHECK(far_rate == Approx(ranks.size() == 2 ? 4 * 0.1 : 2 * 0.1).epsilon(0.05));
    CHECK(near_rate == Approx(ranks.size() == 2 ? 3 * 5.0 : 5.0).epsilon(0.05));
    const auto after = at.sent();
    CHECK(after.elements.at("host 0") > before.elements.at("host 0"));
    CHECK(tune() == text);
    CHECK(at.sent().elements == after.elements);

    const auto ways = [&](size_t r, int64_t bytes) {
      return at.sim.await(at.members[r].call<&Summer::ways>(at.group, bytes)).value();
    };
    for (size_t r = 0; r < at.size(); ++r) {
      CHECK_THAT(ways(r, 8 << 20), Contains("all_reduce by hierarchical: of links measured"));
      CHECK_THAT(ways(r, 16), Contains("all_reduce by whole: of links measured"));
    }
    const Tensor sum = sum_by_hosts(at.hosts, kMany);
    for (const Tensor& x : at.run("all_reduce", kMany)) CHECK(bit_equal(x, sum));
    const auto counts = at.sim.worker(0).metrics();
    CHECK(counts.at("collectives") == 0);
    CHECK(counts.at("early_collectives") == 0);
  }
}
