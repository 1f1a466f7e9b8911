// A test, run in many simulated clusters in which something breaks; what fails is made as short as it goes.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "troupe/simulated/simulated_cluster.h"

namespace troupe {

struct SimulateOptions {
  int workers = 3;          ///< w0, which drives, and others
  uint64_t runs = 200;      ///< how many seeds
  uint64_t first_seed = 1;  ///< then those that follow it
  LinkFaults links = {.delay = std::chrono::milliseconds(1), .jitter = std::chrono::milliseconds(2)};
  int kills = 1;       ///< at most, in one run; of workers that do not drive
  int resets = 0;      ///< likewise, of connections
  int losses = 0;      ///< likewise, of messages
  int partitions = 0;  ///< likewise, of two workers
  Duration longest_partition = std::chrono::seconds(10);
  Duration timeout = std::chrono::seconds(60);  ///< of calls that name none
  internal::actors::TypeRegistry hosting = {};  ///< types that are made by name only
  uint64_t most_messages = 100'000;             ///< a run that sends more has failed: it does not end
  bool check_left = true;  ///< something that is left on living workers at the end is a failure
};

struct SimulateResult {
  uint64_t runs = 0;      ///< each with its faults; before it goes one without
  uint64_t messages = 0;  ///< in all of them
  uint64_t faults = 0;    ///< that were met
  /// What failed first, by the fewest faults: its error, what breaks, what the actors said, and the line that
  /// repeats it.
  std::optional<std::string> failure = {};
  std::optional<SimulatedRun> run = {};  ///< of that failure
};

/// Runs `test` in a new cluster for each seed: first without faults, then with some that the seed draws, each
/// at a message that the run before has shown. A run fails if the test throws, does not come to an end, or
/// leaves something. The first failure ends it: faults are left out as long as it still fails.
///
///   const SimulateResult result = simulate("transfers", transfers, {.workers = 4});
///   if (result.failure) std::printf("%s\n", result.failure->c_str());
///
/// The test gets all that it uses from the cluster, on the thread that calls it, and draws random numbers as
/// any program: they follow from the seed. Calls to workers that were killed fail with `disconnected`, and
/// the test says what has to hold then.
///
/// TROUPE_SIMULATED="transfers 17 kill:12:arriving:receiver" runs that one alone, and passes over tests of
/// other names.
SimulateResult simulate(const std::string& name, const std::function<void(SimulatedCluster&)>& test,
                        const SimulateOptions& options = {});

}  // namespace troupe
