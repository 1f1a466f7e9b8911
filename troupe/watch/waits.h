// Who waits for whom in a cluster, followed to the end: what keeps everybody waiting comes first.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "actors/worker/open_calls.h"

namespace troupe::internal::watch {

/// A worker, and what it said when it was asked for its calls.
struct Asked {
  WorkerId id = 0;
  std::string name;
  std::optional<actors::CallsReport> calls;
  std::string why_silent =
      {};  ///< without calls: what is known of it, "its process 4711 is stopped (SIGSTOP)"
};

/// A cause, and the calls that wait because of it.
struct Wait {
  enum Kind : uint8_t { silent, cycle, cause } kind = cause;
  std::string what;              ///< "Sleeper#0:1 on w2 has been running Sleeper::nap for 3.2 s"
  int64_t waiting = 0;           ///< calls, those that wait for others of them included
  double seconds = 0;            ///< how long the oldest waits
  double left = -1;              ///< until the first of them gives up; below 0: none does
  std::vector<std::string> way;  ///< from the oldest call to the cause: "w0 waits for Relay::ask on w1"
  /// The sentence, with how many wait and how long.
  std::string line() const;
};

/// Workers that do not answer first, then cycles, then causes by how long somebody waits for them; what waits
/// less than `shortest` seconds is left out.
std::vector<Wait> find_waits(const std::vector<Asked>& all, double shortest = 0);
/// For people: a line each, and below it how the oldest call comes to it. "nobody waits" if there are none.
std::string waits_text(const std::vector<Wait>& waits);

}  // namespace troupe::internal::watch
