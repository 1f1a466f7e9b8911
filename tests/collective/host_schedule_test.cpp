// Schedules of ranks on several hosts: what comes out, and how much goes between hosts, whatever ranks each
// host has.
#include <catch2/catch.hpp>

#include <numeric>

#include "collective/schedule/choice.h"
#include "tests/collective/schedule_run.h"

using namespace troupe;
using namespace troupe::testing::schedules;
using namespace troupe::internal::collective;
using Catch::Contains;

namespace {

constexpr Collective kByHosts[] = {Collective::all_reduce, Collective::reduce, Collective::broadcast,
                                   Collective::reduce_scatter, Collective::all_gather};

// That many ranks on each host, one host behind the other.
HostOfRank in_order(const std::vector<size_t>& ranks) {
  HostOfRank of;
  for (size_t h = 0; h < ranks.size(); ++h) of.insert(of.end(), ranks[h], static_cast<uint32_t>(h));
  return of;
}
HostOfRank mixed(const std::vector<size_t>& ranks, uint64_t seed) {
  HostOfRank of = in_order(ranks);
  Generator random(seed);
  for (size_t i = of.size(); i > 1; --i) std::swap(of[i - 1], of[random.below(i)]);
  return counted(of);
}
const std::vector<std::vector<size_t>> kHosts = {{1, 1},    {2, 2},    {4, 4},       {1, 4},      {3, 2},
                                                 {5, 1, 3}, {2, 2, 2}, {4, 4, 4, 4}, {1, 7, 2, 3}};

Problem of_hosts(Collective c, const HostOfRank& hosts, size_t each, size_t root = 0) {
  const size_t n = hosts.size();
  Problem p{c, n, root, {}, counted(hosts)};
  if (is_one_tensor(c))
    p.counts = {n * each};
  else
    p.counts.assign(n, each);
  return p;
}

// First the ranks of each host, then hosts.
Sum sum_by_hosts(const HostOfRank& hosts, size_t i) {
  std::map<uint32_t, std::vector<float>> on;
  Sum sum = sum_of(hosts.size(), i);
  for (size_t r = 0; r < hosts.size(); ++r) on[hosts[r]].push_back(number(r, i));
  const auto add_up = [](std::vector<float>& x) {
    order_of_sum(x.size(), [&](size_t a, size_t b) { x[a] += x[b]; });
    return x[0];
  };
  std::vector<float> all;
  for (auto& [host, x] : on) all.push_back(add_up(x));
  sum.in_order = add_up(all);
  return sum;
}

std::vector<size_t> sent_by_hosts(const Outcome& out, const HostOfRank& hosts) {
  std::vector<size_t> all(*std::ranges::max_element(hosts) + size_t{1});
  for (size_t r = 0; r < hosts.size(); ++r) all[hosts[r]] += out.sent[r].to_other_hosts;
  return all;
}

}  // namespace

TEST_CASE("ranks on hosts get their elements, with sums of one order, whatever ranks each host has") {
  for (const Collective c : kByHosts)
    for (const auto& ranks : kHosts)
      for (uint64_t seed = 0; seed < 4; ++seed) {
        const HostOfRank hosts = seed ? mixed(ranks, seed) : in_order(ranks);
        Generator random(seed);
        Problem p = of_hosts(c, hosts, 0, random.below(hosts.size()));
        if (!p.has_root()) p.root = 0;
        for (size_t& x : p.counts) x = random.below(3) ? random.below(9 * hosts.size()) : 0;
        const auto sum = [&](size_t i) {
          // The hosts' sums are added in the order of who does it, which is theirs if ranks follow each
          // other.
          Sum of = sum_by_hosts(hosts, i);
          if (seed) of.in_order = {};
          return of;
        };
        check_run(p, Way::hierarchical, seed % 2 ? 1 + seed : kOnePiece, seed, sum);
        CHECK(all_heard_of_all(p, Way::hierarchical));
        CHECK(all_heard_of_all(of_hosts(c, hosts, 0, p.root), Way::hierarchical));
      }
}

TEST_CASE("between hosts goes what the formulas say, and less than without regard to hosts") {
  for (const Collective c : kByHosts)
    for (const auto& ranks : kHosts)
      for (const bool is_mixed : {false, true}) {
        const HostOfRank hosts = is_mixed ? mixed(ranks, 7) : in_order(ranks);
        const size_t n = hosts.size(), root = c == Collective::broadcast ? n / 2 : 0;
        const HostCounts on = host_counts(hosts, n);
        const Problem p = of_hosts(c, hosts, on.least * on.hosts * 4, root);
        CAPTURE(name(c), ranks, is_mixed);
        const auto busiest = [&](Way way) {
          const Outcome out = Interpreter(p, way, kOnePiece, given_to(p), 1).run();
          return static_cast<double>(std::ranges::max(sent_by_hosts(out, hosts)));
        };
        const auto formula = [&](Way way) {
          return leaves_host(c, way, n, static_cast<double>(p.elements()), on);
        };
        CHECK(busiest(Way::hierarchical) == Approx(formula(Way::hierarchical)).epsilon(0.05));
        if (!p.has_root() && c != Collective::reduce && c != Collective::broadcast)
          CHECK(busiest(Way::direct) == Approx(formula(Way::direct)).epsilon(0.05));
        if (on.least > 1) CHECK(1.3 * busiest(Way::hierarchical) < busiest(Way::direct));
      }
}

TEST_CASE("what ranks on hosts send, and in how many rounds, is what the formulas say") {
  for (const Collective c : kByHosts)
    for (const auto& [count, each] : {std::pair{2, 2}, {2, 4}, {4, 2}, {3, 3}, {4, 5}, {2, 1}}) {
      CAPTURE(name(c), count, each);
      const HostOfRank hosts =
          in_order(std::vector<size_t>(static_cast<size_t>(count), static_cast<size_t>(each)));
      const size_t n = hosts.size();
      const Problem p = of_hosts(c, hosts, 4 * n, n / 2);
      const Outcome out = Interpreter(p, Way::hierarchical, kOnePiece, given_to(p), 3).run();
      const Cost formula =
          cost(c, Way::hierarchical, n, static_cast<double>(p.elements()), host_counts(hosts, n));
      size_t messages = 0, elements = 0;
      for (const Sent& s : out.sent)
        messages = std::max(messages, s.messages), elements = std::max(elements, s.elements);
      CHECK(messages == formula.messages);
      CHECK(static_cast<double>(elements) == Approx(formula.elements).epsilon(1e-12));
      CHECK(out.rounds == formula.rounds);
    }
}

TEST_CASE("hosts are taken into account where they send less, and the reason is said") {
  const HostCounts two_of_four{2, 4, 4}, uneven{3, 1, 5};
  const auto way = [](Collective c, size_t n, size_t bytes, const HostCounts& on) {
    return choose({c, n, bytes, on}).way;
  };
  for (const Collective c : kByHosts) {
    CAPTURE(name(c));
    CHECK(way(c, 8, 1 << 20, two_of_four) == Way::hierarchical);
    CHECK(way(c, 8, 1 << 10, two_of_four) != Way::hierarchical);
    CHECK(way(c, 9, 1 << 20, uneven) == Way::hierarchical);
    CHECK(way(c, 8, 1 << 20, {8, 1, 1}) != Way::hierarchical);
    CHECK(way(c, 8, 1 << 20, {1, 8, 8}) != Way::hierarchical);
    CHECK(way(c, 64, 64 << 20, {4, 16, 16}) == Way::hierarchical);
    CHECK(way(c, 68, 64 << 20, {4, 17, 17}) != Way::hierarchical);
    CHECK(way(c, 34, 64 << 20, {17, 2, 2}) != Way::hierarchical);
  }
  CHECK(way(Collective::all_to_all, 8, 1 << 20, two_of_four) == Way::direct);
  const auto why = [](Collective c, size_t n, size_t bytes, const HostCounts& on) {
    return why_chosen({c, n, bytes, on});
  };
  CHECK(
      why(Collective::all_reduce, 8, 25 << 20, two_of_four) ==
      "hierarchical: 25 MiB go between hosts as seldom as they can; the busiest of 8 ranks sends 43.75 MiB "
      "in 4 rounds; 2 hosts of 4 ranks, of which the busiest sends 25 MiB to others, and 100 MiB by direct");
  CHECK_THAT(why(Collective::all_reduce, 9, 25 << 20, uneven),
             Contains("; 3 hosts of 1 to 5 ranks, of which"));
  CHECK_THAT(
      why(Collective::all_reduce, 8, 1000, two_of_four),
      Contains("whole: 1000 bytes are few bytes, so few rounds count") && Contains("2 hosts of 4 ranks"));
  CHECK_THAT(why(Collective::all_reduce, 68, 64 << 20, {4, 17, 17}),
             Contains("hierarchical is for at most 16 hosts, of at most 16 ranks"));
  CHECK_THAT(why(Collective::all_to_all, 8, 1 << 20, two_of_four),
             Contains("between which each block goes once as it is"));
  // A block of a column in a chunk, so that several are on their way.
  CHECK(choose({Collective::all_reduce, 8, 25 << 20, two_of_four}).piece_bytes == 512 << 10);
}

TEST_CASE("hosts of ranks that do not fit the group are refused") {
  CHECK_THROWS_WITH(steps({Collective::all_reduce, 3, 0, {4}, {0, 1}}, Way::hierarchical, 0),
                    Contains("hosts of 2 ranks for a group of 3"));
  CHECK_THROWS_WITH(steps({Collective::all_reduce, 2, 0, {4}, {0, 7}}, Way::hierarchical, 0),
                    Contains("counted from 0 as they are met"));
  CHECK(counted({7, 7, 7}) == HostOfRank{});
  CHECK(counted({7, 2, 7, 9}) == HostOfRank{0, 1, 0, 2});
}

TEST_CASE("links that are measured decide, and the times are said") {
  const HostCounts two_of_four{2, 4, 4};
  const Links slow_between{5e-6, 5e9, 200e-6, 100e6}, fast_between{50e-6, 0.3e9, 5e-6, 100e9};
  const auto way = [&](Collective c, size_t bytes, const Links& links) {
    return choose({c, 8, bytes, two_of_four, {}, links}).way;
  };
  // The rounds of few bytes count, then what goes between hosts.
  CHECK(way(Collective::all_reduce, 64, slow_between) == Way::whole);
  CHECK(way(Collective::all_reduce, 16 << 10, slow_between) == Way::hierarchical);
  for (const Collective c : kByHosts) {
    CAPTURE(name(c));
    CHECK(way(c, 8 << 20, slow_between) == Way::hierarchical);
    CHECK(way(c, 64, slow_between) != Way::hierarchical);
    // The way that is chosen takes the least of those that are offered.
    for (size_t bytes = 64; bytes < 64 << 20; bytes *= 4)
      for (const Links& links : {slow_between, fast_between}) {
        const Setting s{c, 8, bytes, two_of_four, {}, links};
        for (int i = 0; i < kWayCount; ++i)
          if (const auto w = static_cast<Way>(i); offers(c, w))
            CHECK(seconds_by(s, choose(s).way, links) <= seconds_by(s, w, links));
      }
  }
  // What goes within hosts counts where these are the slow ones.
  CHECK(way(Collective::all_reduce, 8 << 20, fast_between) == Way::direct);
  CHECK(way(Collective::all_to_all, 8 << 20, slow_between) == Way::direct);
  CHECK(choose({Collective::all_reduce, 8, 8 << 20, {1, 8, 8}, {}, slow_between}).lends);
  CHECK(choose({Collective::all_reduce, 8, 8 << 20, two_of_four, Way::ring, slow_between}).way == Way::ring);
  CHECK_THAT(why_chosen({Collective::reduce_scatter, 8, 8 << 20, two_of_four, {}, slow_between}),
             Contains("hierarchical: of links measured, direct ") && Contains(", hierarchical ") &&
                 Contains("between hosts 200 us and 0.1 GB/s, within a host 5 us and 5 GB/s"));
}
