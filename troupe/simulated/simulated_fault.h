// What breaks in a simulated run, and at which message.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"

namespace troupe {

/// What breaks in a simulated run, at the n-th message: of a worker or of a connection, at an exact point.
struct SimulatedFault {
  enum class Kind {
    kill,       ///< of the message's sender or receiver: it does nothing more, and all lose it
    reset,      ///< of the connections that one of the two has opened to the other
    partition,  ///< between the two: they lose each other if it lasts
    loss,       ///< of the message, and of what both send each other in that instant
  };
  /// Moments in the life of a message.
  enum class Moment { sending, arriving, handled };
  Kind kind = Kind::kill;
  Moment moment = Moment::sending;
  uint64_t message = 1;     ///< from 1, counted for each kind of moment
  bool receiver = false;    ///< it is the receiver that dies, or whose connections are reset
  bool last_words = false;  ///< what a killed worker has sent still arrives
  Duration lasts{0};        ///< of a partition; at most kLongest
  /// Ten years, so that no clock overflows.
  static constexpr Duration kLongest = std::chrono::hours(24 * 365 * 10);

  /// "kill:12:arriving:receiver", "partition:3:sending:250000us": what of() reads.
  std::string text() const;
  /// `invalid` for what is no text of a fault.
  static SimulatedFault of(std::string_view text);
  /// A sentence: "as message 12 arrives its receiver is killed".
  std::string describe() const;
  bool operator==(const SimulatedFault&) const = default;
};

/// One run: its seed, and what breaks.
struct SimulatedRun {
  uint64_t seed = 1;
  std::vector<SimulatedFault> faults = {};
  bool even = false;  ///< links without jitter

  /// "17 kill:12:arriving:receiver", "17 even": what of() reads.
  std::string text() const;
  static SimulatedRun of(std::string_view text);
};

}  // namespace troupe
