#include "troupe/simulated/simulate.h"

#include <algorithm>
#include <cstdlib>

#include "core/base/generator.h"
#include "core/base/log.h"
#include "core/base/seed_stream.h"
#include "troupe/simulated/shrink.h"

namespace troupe {
namespace {

constexpr const char* kSimulated = "TROUPE_SIMULATED";
constexpr size_t kShownMessages = 40;

// What one run came to.
struct SimulatedOutcome {
  std::optional<std::string> error;
  uint64_t moments[3] = {0, 0, 0}, faults = 0;
  std::vector<std::string> log;
};

// Workers that are lost, and handlers that throw, are what runs are about.
class Quiet {
 public:
  Quiet() : before_(internal::log::set_level(internal::log::Level::off)) {}
  ~Quiet() { internal::log::set_level(before_); }

 private:
  internal::log::Level before_;
};

class Simulation {
 public:
  Simulation(std::string name, const std::function<void(SimulatedCluster&)>& test,
             const SimulateOptions& options)
      : name_(std::move(name)), test_(test), options_(options) {}

  SimulateResult all() {
    for (uint64_t i = 0; i < options_.runs && !result_.failure; ++i) {
      const uint64_t seed = options_.first_seed + i;
      const SimulatedRun calm{.seed = seed};
      SimulatedOutcome outcome = run(calm);
      if (outcome.error) {
        fail(calm, outcome);
        break;
      }
      const SimulatedRun drawn{.seed = seed, .faults = draw(seed, outcome)};
      ++result_.runs;
      outcome = run(drawn);
      result_.messages += outcome.moments[0], result_.faults += outcome.faults;
      if (outcome.error) fail(drawn, outcome);
    }
    return result_;
  }

  SimulateResult one(const SimulatedRun& given) {
    const SimulatedOutcome outcome = run(given, true);
    result_ = {.runs = 1, .messages = outcome.moments[0], .faults = outcome.faults};
    if (outcome.error) report(given, outcome, "");
    return result_;
  }

 private:
  SimulatedOutcome run(const SimulatedRun& what, bool logged = false) const {
    SimulatedOutcome outcome;
    manual_seed(what.seed);
    SimulatedOptions options{.links = options_.links, .timeout = options_.timeout};
    if (what.even) options.links.jitter = Duration(0);
    SimulatedCluster cluster(what.seed, options_.workers, options_.hosting, options);
    cluster.plan(what.faults);
    cluster.limit_messages(options_.most_messages);
    if (logged) cluster.keep_log();
    try {
      test_(cluster);
      cluster.settle();
      if (options_.check_left)
        if (const std::string left = cluster.left(); !left.empty())
          outcome.error = "something is left when the test has ended: " + left;
    } catch (...) {
      outcome.error = current_error().what();
    }
    for (const auto moment :
         {SimulatedFault::Moment::sending, SimulatedFault::Moment::arriving, SimulatedFault::Moment::handled})
      outcome.moments[static_cast<size_t>(moment)] = cluster.messages(moment);
    outcome.faults = cluster.faults_met();
    outcome.log = cluster.log();
    return outcome;
  }

  std::vector<SimulatedFault> draw(uint64_t seed, const SimulatedOutcome& calm) const {
    Generator random = Generator(seed).split(2);
    std::vector<SimulatedFault> faults;
    const auto add = [&](SimulatedFault::Kind kind, int most) {
      for (int n = 0; n < most; ++n) {
        SimulatedFault fault{.kind = kind};
        if (kind != SimulatedFault::Kind::loss)
          fault.moment = static_cast<SimulatedFault::Moment>(random.below(3));
        fault.message =
            1 + random.below(std::max<uint64_t>(calm.moments[static_cast<size_t>(fault.moment)], 1));
        fault.receiver = kind != SimulatedFault::Kind::loss && random.below(2);
        fault.last_words = kind == SimulatedFault::Kind::kill && random.below(2);
        if (kind == SimulatedFault::Kind::partition)
          fault.lasts = std::chrono::microseconds(
              1 + random.below(static_cast<uint64_t>(options_.longest_partition.count()) / 1000 + 1));
        faults.push_back(fault);
      }
    };
    add(SimulatedFault::Kind::kill, options_.kills);
    add(SimulatedFault::Kind::reset, options_.resets);
    add(SimulatedFault::Kind::loss, options_.losses);
    add(SimulatedFault::Kind::partition, options_.partitions);
    return faults;
  }

  void fail(SimulatedRun found, const SimulatedOutcome& outcome) {
    const size_t drawn = found.faults.size();
    const auto fails = [&](const SimulatedRun& other) { return run(other).error.has_value(); };
    if (!fails(found)) return report(found, outcome, unsteady());
    found.faults = internal::shrink<SimulatedFault>(
        found.faults,
        [&](const std::vector<SimulatedFault>& some) { return fails({.seed = found.seed, .faults = some}); });
    if (SimulatedRun other = found; other.even = true, fails(other)) found = other;
    for (size_t i = 0; i < found.faults.size(); ++i)
      while (found.faults[i].lasts > std::chrono::microseconds(1)) {
        SimulatedRun other = found;
        other.faults[i].lasts = std::chrono::floor<std::chrono::microseconds>(other.faults[i].lasts / 2);
        if (!fails(other)) break;
        found = other;
      }
    const std::string of = found.faults.size() < drawn ? ", by " + std::to_string(found.faults.size()) +
                                                             " of " + std::to_string(drawn) + " faults"
                                                       : "";
    const SimulatedOutcome shortest = run(found, true);
    report(found, shortest.error ? shortest : outcome, shortest.error ? of : unsteady());
  }

  static std::string unsteady() {
    return ", and not when it runs again: something in the test is no function of its seed (time, threads, "
           "addresses, what an earlier run has left)";
  }

  void report(const SimulatedRun& of, const SimulatedOutcome& outcome, const std::string& how) {
    std::string text = "simulate \"" + name_ + "\" fails with seed " + std::to_string(of.seed) + how + ": " +
                       *outcome.error + "\n";
    for (const SimulatedFault& fault : of.faults) text += "  " + fault.describe() + "\n";
    if (of.even) text += "  links have no jitter\n";
    const size_t skipped = outcome.log.size() - std::min(outcome.log.size(), kShownMessages);
    if (skipped) text += "  ... " + std::to_string(skipped) + " lines before these\n";
    for (size_t i = skipped; i < outcome.log.size(); ++i) text += outcome.log[i] + "\n";
    text += "again: " + std::string(kSimulated) + "='" + name_ + " " + of.text() + "'";
    result_.failure = text;
    result_.run = of;
  }

  const std::string name_;
  const std::function<void(SimulatedCluster&)>& test_;
  const SimulateOptions& options_;
  SimulateResult result_;
};

void check_options(const SimulateOptions& o) {
  for (const auto& [name, value] : {std::pair("kills", o.kills), std::pair("resets", o.resets),
                                    std::pair("losses", o.losses), std::pair("partitions", o.partitions)})
    if (value < 0)
      throw_invalid("[simulate] " + std::string(name) + " is " + std::to_string(value) +
                    "; expected 0 or more");
  if (o.longest_partition < Duration(0) || o.longest_partition > SimulatedFault::kLongest)
    throw_invalid("[simulate] longest_partition is " + std::to_string(o.longest_partition.count()) +
                  " ns; expected 0 to " + std::to_string(SimulatedFault::kLongest.count()) + " ns");
  if (o.workers < 2 && o.kills > 0)
    throw_invalid(
        "[simulate] 1 worker, which drives: nobody is left to be killed; give 2 or more, or kills = 0");
}

}  // namespace

SimulateResult simulate(const std::string& name, const std::function<void(SimulatedCluster&)>& test,
                        const SimulateOptions& options) {
  if (name.empty() || name.find(' ') != std::string::npos)
    throw_invalid("[simulate] a test's name is one word, got '" + name + "'");
  check_options(options);
  const Quiet quiet;
  Simulation simulation(name, test, options);
  const char* const given = std::getenv(kSimulated);
  if (!given || !*given) return simulation.all();
  const std::string_view line = given;
  const size_t space = std::min(line.find(' '), line.size());
  if (line.substr(0, space) != name) return {};
  return simulation.one(SimulatedRun::of(line.substr(space)));
}

}  // namespace troupe
