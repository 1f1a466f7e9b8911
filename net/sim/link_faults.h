// What a simulated link does to messages.
#pragma once
#include "core/base/clock.h"

namespace troupe {

/// What a simulated link does to messages. All random choices come from the seed of the run.
struct LinkFaults {
  Duration delay{0};            ///< of each message
  Duration jitter{0};           ///< each takes delay + [0, jitter) instead; order within a connection is kept
  double bytes_per_second = 0;  ///< 0: unlimited
  double drop = 0;       ///< probability that a message is lost (the connection then breaks, as TCP's would)
  double duplicate = 0;  ///< probability that a message comes twice; only below a connection: see `resend`
  double reorder = 0;    ///< probability that a message overtakes the one before; see `resend`, too
  /// The connection makes good what the link does, as TCP does: what was lost is sent again after this time,
  /// what comes twice is known by its number, what comes too early waits. 0: it does not.
  Duration resend{0};
};

}  // namespace troupe
