// ./dev soak sim: many simulated runs, or one of them again, event by event.
#include <csignal>
#include <cstdio>

#include "core/base/generator.h"
#include "core/base/log.h"
#include "tests/soak/plan.h"
#include "tests/soak/planted.h"
#include "tests/soak/run.h"
#include "tools/flags/flags.h"
#include "tools/flags/progress.h"

using namespace troupe;

namespace {

volatile std::sig_atomic_t interrupted = 0;

bool planted = false;

soak::Report run(uint64_t seed, bool tracing = false) {
  return planted ? soak::planted(seed, tracing) : soak::run(seed, tracing);
}

// The plan, what happened, and what was wrong.
void show(uint64_t seed, size_t lines) {
  const soak::Report r = run(seed, true);
  if (!planted) std::printf("%s", soak::describe(soak::plan_of(seed)).c_str());
  const size_t skip = r.trace.size() > lines ? r.trace.size() - lines : 0;
  if (skip) std::printf("... %zu events before these\n", skip);
  for (size_t i = skip; i < r.trace.size(); ++i) std::printf("%s\n", r.trace[i].c_str());
  std::printf("%llu calls, %llu errors, %llu faults, hash %016llx\n",
              static_cast<unsigned long long>(r.calls), static_cast<unsigned long long>(r.errors),
              static_cast<unsigned long long>(r.faults), static_cast<unsigned long long>(r.hash));
  std::printf("%s\n", r.failure ? ("FAILED: " + *r.failure).c_str() : "all invariants hold");
  std::fflush(stdout);
}

struct Sum {
  uint64_t runs = 0, failed = 0, calls = 0, errors = 0, faults = 0, hash = 0;
};

}  // namespace

int main(int argc, char** argv) {
  int64_t runs = 0, seed = -1, from = 1, last = 60, failures = 10;
  double minutes = 0;
  tools::Flags flags(
      "soak_sim", "Runs whole clusters on the simulated network, each with another seed and other faults.");
  flags.add("--runs", runs, "how many; 0: until the time is over, or Ctrl-C", {0, 1e12})
      .add("--minutes", minutes, "stop after this time; 0: never", {0, 1e6})
      .add("--from", from, "first seed", {0, 1e15})
      .add("--planted", planted, "instead of such faults, any one step of backward passes fails")
      .add("--seed", seed, "only this one, with all that happens", {-1, 1e15})
      .add("--last", last, "events to show of a run that failed", {0, 1e6})
      .add("--failures", failures, "stop after so many", {1, 1e6});
  if (auto code = flags.parse(argc, argv)) return *code;
  troupe::internal::log::set_level(troupe::internal::log::Level::off);  // lost calls are what this is about
  if (seed >= 0) {
    show(static_cast<uint64_t>(seed), ~size_t{0});
    return run(static_cast<uint64_t>(seed)).failure ? 1 : 0;
  }
  std::signal(SIGINT, [](int) { interrupted = 1; });
  std::signal(SIGTERM, [](int) { interrupted = 1; });
  const Clock& clock = Clock::system();
  const TimePoint start = clock.now();
  tools::Progress progress({.total = runs, .label = "soak sim"});
  Sum sum;
  const auto seconds = [&] { return std::chrono::duration<double>(clock.now() - start).count(); };
  while (!interrupted && (runs == 0 || sum.runs < static_cast<uint64_t>(runs)) &&
         (minutes == 0 || seconds() < minutes * 60) && sum.failed < static_cast<uint64_t>(failures)) {
    const uint64_t n = static_cast<uint64_t>(from) + sum.runs;
    const soak::Report r = run(n);
    ++sum.runs;
    sum.calls += r.calls, sum.errors += r.errors, sum.faults += r.faults;
    sum.hash = splitmix64(sum.hash ^ r.hash);
    progress.update(static_cast<int64_t>(sum.runs), {{"failed", double(sum.failed)}}, 1);
    if (!r.failure) continue;
    ++sum.failed;
    std::printf("\nseed %llu failed: %s\n", static_cast<unsigned long long>(n), r.failure->c_str());
    show(n, static_cast<size_t>(last));
    std::printf("again: ./dev soak sim %s--seed %llu\n", planted ? "--planted " : "",
                static_cast<unsigned long long>(n));
    std::fflush(stdout);
  }
  progress.finish();
  std::printf(
      "soak sim: %llu runs from seed %lld, %llu failed; %llu calls, %llu errors, %llu faults; %.1f s, "
      "%.0f runs/s; hash %016llx\n",
      static_cast<unsigned long long>(sum.runs), static_cast<long long>(from),
      static_cast<unsigned long long>(sum.failed), static_cast<unsigned long long>(sum.calls),
      static_cast<unsigned long long>(sum.errors), static_cast<unsigned long long>(sum.faults), seconds(),
      static_cast<double>(sum.runs) / seconds(), static_cast<unsigned long long>(sum.hash));
  return sum.failed ? 1 : 0;
}
