#include "tests/soak/run.h"

#include "core/base/log.h"
#include "core/base/seed_stream.h"
#include "tests/soak/script.h"

namespace troupe::soak {
namespace {

constexpr Body kBodies[] = {call_program, reference_program, value_program, training_program};

Task<void> aftermath(Script& s) {
  std::vector<WorkerId> friends{s.process.id};  // who have all not lost each other
  for (size_t i = 0; i < s.cluster.size(); ++i) {
    bool all = s.cluster.process(i).id != s.process.id;
    for (WorkerId f : friends) all = all && s.cluster.linked(s.cluster.process(f), s.cluster.process(i));
    if (all) friends.push_back(s.cluster.process(i).id);
  }
  const WorkerId a = friends[friends.size() > 1], b = friends.back();
  const bool right = co_await one_step(s, a, b);
  if (!right && s.alive()) s.cluster.wrong("a training step among survivors failed");
}

// Names that may have been left because somebody died, or lost somebody.
void drop_names(Cluster& cluster) {
  for (size_t i = 0; i < cluster.size(); ++i)
    if (cluster.process(i).alive) start(cluster, cluster.process(i), drop_own_names, 0);
  cluster.settle();
}

}  // namespace

Report run(uint64_t seed, bool tracing) {
  const Plan plan = plan_of(seed);
  manual_seed(seed);  // what is spawned takes its stream from the program's
  Report report;
  Cluster cluster(plan, hosted(), tracing);
  for (size_t i = 0; i < plan.programs.size(); ++i) {
    const auto& [program, worker] = plan.programs[i];
    start(cluster, cluster.process(static_cast<size_t>(worker)), kBodies[static_cast<int>(program)],
          splitmix64(seed ^ (i + 1) << 56));
  }
  cluster.settle();
  drop_names(cluster);
  cluster.check_nothing_left();
  cluster.network().set_faults({.delay = std::chrono::milliseconds(1)});
  cluster.stop_faults();
  for (size_t i = 0; i < cluster.size(); ++i) {
    if (!cluster.process(i).alive) continue;
    start(cluster, cluster.process(i), aftermath, seed);
    cluster.settle();
    cluster.check_nothing_left();
    break;
  }
  cluster.end();
  report.failure = cluster.failure();
  report.hash = cluster.hash();
  report.events = cluster.events();
  report.calls = cluster.calls();
  report.errors = cluster.errors();
  report.faults = cluster.faults();
  report.trace = {cluster.trace().begin(), cluster.trace().end()};
  return report;
}

}  // namespace troupe::soak
