// What happens in one simulated run: how large the cluster is, what its links do, when what breaks, and which
// programs run. A function of the seed.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "net/sim/network.h"
#include "troupe/simulated/simulated_fault.h"

namespace troupe::soak {

using Moment = SimulatedFault::Moment;
/// After a kill, `lasts` is the time until another worker is started in its place (0: none is).
using Fault = SimulatedFault;

enum class Program { calls, references, values, training };

struct Plan {
  uint64_t seed = 0;
  int workers = 3;
  internal::net::Faults links;
  /// How many of 8 turns of mailboxes come later than at once, and how much later at most.
  uint64_t late_turns = 0;
  Duration latest_turn{0};
  std::vector<Fault> faults;
  /// Each with the worker that it runs on.
  std::vector<std::pair<Program, int>> programs;
};

Plan plan_of(uint64_t seed);
/// One line per fact.
std::string describe(const Plan& plan);

}  // namespace troupe::soak
