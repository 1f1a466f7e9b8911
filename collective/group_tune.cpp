// How the members of a group measure the links between them, all at once.
#include <algorithm>

#include "actors/worker/start_task.h"
#include "collective/engine.h"
#include "core/tensor/creation.h"

namespace troupe {

using namespace internal::collective;

namespace {

constexpr int64_t kTunedBytes = 8 << 20;  // that a host's members send at once

double seconds_since(const Clock& clock, TimePoint start) {
  return std::chrono::duration<double>(clock.now() - start).count();
}

// What one of some sums takes, one behind the other.
Task<double> time_sums(Group group, std::string way, int64_t elements, int times, const Clock& clock) {
  TimePoint start;
  for (int i = -1; i < times; ++i) {
    if (!i) start = clock.now();
    const CollectiveOptions options{.tag = "\ntuned", .way = way, .gradients = false};
    const auto summing = group.all_reduce(zeros({elements}), options);
    co_await summing;
  }
  co_return seconds_since(clock, start) / times;
}

struct Measured {
  double round = 0, rate = 0;
};

// Each member sends 2 (n - 1) / n of the bytes of a sum, and so do others of its host, `beside` in all.
Task<Measured> measure(Group group, int64_t bytes, size_t beside, const Clock& clock) {
  Measured m;
  m.round = co_await time_sums(group, "whole", 1, 10, clock);
  const double large = co_await time_sums(group, "direct", bytes / 4, 3, clock);
  const auto n = static_cast<double>(group.size());
  const double sent = 2 * (n - 1) / n * static_cast<double>(bytes) * static_cast<double>(beside);
  m.rate = sent / std::max(large - 2 * m.round, large / 10 + 1e-9);
  co_return m;
}

// They all get the same.
Task<Links> measure_links(GroupEngine& engine, Group group, const Clock& clock) {
  const HostPlaces places(counted(hosts_of(group)), group.size());
  const size_t me = group.rank(), host = places.host(me), place = places.place(me),
               columns = places.columns();
  Measured near, far;
  if (const auto& beside = places.of_host(host); beside.size() > 1) {
    const Group here = group.subset(beside, group.name() + "\ntuned on host " + std::to_string(host));
    near = co_await measure(here, kTunedBytes / 2, 1, clock);
    engine.forget(here);
  }
  if (places.hosts() > 1 && place < columns) {
    std::vector<size_t> ranks;
    for (size_t h = 0; h < places.hosts(); ++h) ranks.push_back(places.rank(h, place));
    const Group there = group.subset(ranks, group.name() + "\ntuned at place " + std::to_string(place));
    far = co_await measure(there, kTunedBytes / static_cast<int64_t>(columns), columns, clock);
    engine.forget(there);
  }
  Tensor slowest = zeros({4}, {float64, cpu});
  const auto inverse = [](double x) { return x > 0 ? 1 / x : 0; };
  double* const x = slowest.data<double>();
  x[0] = near.round, x[1] = inverse(near.rate), x[2] = far.round, x[3] = inverse(far.rate);
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
