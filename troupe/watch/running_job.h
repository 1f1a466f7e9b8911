// Jobs of this user that run on this host, found by their doors.
#pragma once
#include <string>
#include <vector>

#include "troupe/watch/doors.h"

namespace troupe::internal::watch {

/// Processes that have one job's name. `doors`: by rank.
struct RunningJob {
  std::string job;
  std::vector<Door> doors;
  /// The answer of the first process that gives one, as it came; empty if none does. One that keeps silent
  /// for a moment has the next one asked besides.
  std::string ask(const std::string& question, double seconds = 5) const;
};

/// Jobs whose name, or whose program's, begins with `which`; all if that is empty.
std::vector<RunningJob> running_jobs(const std::string& which = "");
/// A process's program, "digits"; empty if it cannot be read.
std::string program_of(pid_t pid);

}  // namespace troupe::internal::watch
