// How the members of a group measure the links between them.
#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <vector>

#include "actors/worker/start_task.h"
#include "collective/engine.h"
#include "core/tensor/creation.h"

namespace troupe {

using namespace internal::collective;

namespace {

constexpr int64_t kTunedBytes = 8 << 20;  // that a host's members send at once

// The mean time of some sums, one behind the other, but for the quarters that took least and most. (Members
// take turns at being early: the middle one alone would be too long at one of them.)
Task<double> time_sums(Group group, std::string way, int64_t elements, size_t times, const Clock& clock) {
  constexpr size_t kBefore = 3;  // those in which connections are made
  std::vector<Duration> all;
  for (size_t i = 0; i < kBefore + times; ++i) {
    const TimePoint start = clock.now();
    const CollectiveOptions options{.tag = "\ntuned", .way = way, .gradients = false};
    const auto summing = group.all_reduce(zeros({elements}), options);
    co_await summing;
    if (i >= kBefore) all.push_back(clock.now() - start);
  }
  std::ranges::sort(all);
  const auto from = all.begin() + static_cast<ptrdiff_t>(all.size() / 4),
             end = all.end() - (from - all.begin());
  co_return std::chrono::duration<double>(std::accumulate(from, end, Duration(0))).count() /
      static_cast<double>(end - from);
}

// A group of some of the members, which sum as others do at the same time. Without members it does not.
struct Summing {
  std::optional<Group> group = {};
  size_t at_once = 1;  // so many members of a host send
  double round = 0, rate = 0;
};

Task<double> time_round(Summing s, const Clock& clock) {
  if (!s.group) co_return 0;
  co_return co_await time_sums(*s.group, "whole", 1, 24, clock);
}
// Each member sends 2 (n - 1) / n of a sum.
Task<double> time_rate(Summing s, const Clock& clock) {
  if (!s.group) co_return 0;
  const int64_t bytes = kTunedBytes / static_cast<int64_t>(s.at_once);
  const double time = co_await time_sums(*s.group, "direct", bytes / 4, 6, clock);
  const auto n = static_cast<double>(s.group->size());
  const double sent = 2 * (n - 1) / n * static_cast<double>(bytes) * static_cast<double>(s.at_once);
  co_return sent / std::max(time - 2 * s.round, time / 10 + 1e-9);
}

// All members call it, and all get the same.
Task<Links> measure_links(GroupEngine& engine, Group group, const Clock& clock) {
  const HostPlaces places(counted(hosts_of(group)), group.size());
  const size_t me = group.rank(), host = places.host(me), place = places.place(me),
               columns = places.columns();
  std::array<Summing, 2> links;  // within the host, and between hosts
  if (const auto& beside = places.of_host(host); beside.size() > 1)
    links[0].group = group.subset(beside, group.name() + "\ntuned on host " + std::to_string(host));
  if (places.hosts() > 1 && place < columns) {
    std::vector<size_t> ranks;
    for (size_t h = 0; h < places.hosts(); ++h) ranks.push_back(places.rank(h, place));
    links[1] = {group.subset(ranks, group.name() + "\ntuned at place " + std::to_string(place)), columns};
  }
  // All measure the same at one time, and nothing else.
  const CollectiveOptions together{.tag = "\ntuned"};
  for (const bool rounds : {true, false})
    for (Summing& s : links) {
      const auto meeting = group.barrier(together);
      co_await meeting;
      (rounds ? s.round : s.rate) = co_await (rounds ? time_round(s, clock) : time_rate(s, clock));
    }
  for (const Summing& s : links)
    if (s.group) engine.forget(*s.group);
  Tensor slowest = zeros({4}, {float64, cpu});
  const auto inverse = [](double x) { return x > 0 ? 1 / x : 0; };
  double* const x = slowest.data<double>();
  x[0] = links[0].round, x[1] = inverse(links[0].rate);
  x[2] = links[1].round, x[3] = inverse(links[1].rate);
  const CollectiveOptions most{.op = ReduceOp::max, .tag = "\ntuned", .gradients = false};
  const auto agreeing = group.all_reduce(slowest, most);
  const Tensor agreed = co_await agreeing;
  const double* const y = agreed.data<double>();
  co_return Links{y[0], inverse(y[1]), y[2], inverse(y[3])};
}

}  // namespace

Future<std::string> Group::tune() const {
  (void)rank();  // refuses who is no member
  internal::actors::Worker& worker = *frame().worker;
  GroupEngine& engine = GroupEngine::of(worker);
  if (const auto known = engine.links().find(members_))
    return Future<std::string>::ready(internal::collective::text_of(*known));
  return internal::actors::start_task(measure_links(engine, *this, worker.clock()))
      .then([&engine, members = members_](const Links& links) {
        engine.links().remember(members, links);
        return internal::collective::text_of(links);
      });
}

}  // namespace troupe
