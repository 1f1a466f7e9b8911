// How long calls take, in words.
#include "actors/calls/call_limit.h"

#include <fmt/format.h>

#include <algorithm>

namespace troupe::internal::actors {

Duration lead_of(const CallLimit& limit) {
  return std::min<Duration>((limit.end - limit.made) / 8, std::chrono::milliseconds(250));
}

std::string text_of(Duration d) {
  const double seconds = std::chrono::duration<double>(d).count();
  return seconds < 1 ? fmt::format("{:.3g} ms", seconds * 1e3) : fmt::format("{:.4g} s", seconds);
}

std::string overdue(const std::string& call, const std::string& worker, const CallLimit& limit, TimePoint now,
                    const std::string& status) {
  const std::string granted = text_of(limit.end - limit.made);
  const char* const advice[] = {
      "the limit that with_timeout() gave it",
      "the limit of calls that name none (ClusterOptions::timeout)",
      "which is what was left to the call that made it",
  };
  return fmt::format(
      "[call] {} gave no answer within {}, {}; {} have passed. {} If that is as it should be, allow {} more: "
      "ref.with_timeout(std::chrono::hours(1)).call<...>(...), or with_timeout(0s) for no limit",
      call, granted, advice[static_cast<int>(limit.from)], text_of(now - limit.made),
      status.empty() ? "Worker " + worker + " has not said in time what it is doing." : status,
      limit.from == CallLimit::From::caller ? "the outer call" : "it");
}

}  // namespace troupe::internal::actors
