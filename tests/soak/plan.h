// What happens in one simulated run: how large the cluster is, what its links do, when what breaks, and which
// programs run. A function of the seed.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "net/sim/network.h"

namespace troupe::soak {

/// Moments in the life of a message.
enum class Moment { sending, arriving, handled };

/// Something that breaks at the n-th message (counted for each kind of moment, from 1).
struct Fault {
  enum class Kind {
    crash,      ///< of the message's sender or receiver
    reset,      ///< of the connections that one of the two has opened to the other
    partition,  ///< between the two
  };
  Kind kind = Kind::crash;
  Moment moment = Moment::sending;
  uint64_t message = 1;
  bool receiver = false;  ///< it is the receiver that crashes, or whose connections are reset
  internal::net::InFlight in_flight = internal::net::InFlight::lost;
  /// Of a partition; after a crash, until another worker is started in its place (0: none is).
  Duration lasts{0};
};

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
