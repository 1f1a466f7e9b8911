#include "tools/watch/asking.h"

#include <iostream>

namespace troupe::tools {

std::optional<int> Asking::find(bool one) {
  if (which.size() > 1) {
    std::cerr << "troupe " << verb << ": "
              << (which[1].starts_with("-") ? "flags come before the job's name"
                                            : "one job at a time, not " + std::to_string(which.size()))
              << "\n";
    return 2;
  }
  jobs = running_jobs(which.empty() ? "" : which[0]);
  if (jobs.empty()) {
    std::cerr << "troupe " << verb << ": no job of yours runs on this host"
              << (which.empty() ? "" : " whose name or program begins with '" + which[0] + "'")
              << "; of another host it is `ssh HOST troupe " << verb << "`\n";
    return 3;
  }
  if (one && jobs.size() > 1) {
    std::cerr << "troupe " << verb << ": several jobs run here, name one:";
    for (const RunningJob& job : jobs)
      std::cerr << " " << job.job << " (" << program_of(job.doors[0].pid) << ")";
    std::cerr << "\n";
    return 2;
  }
  return {};
}

void Asking::say_silent(const RunningJob& job) const {
  std::cerr << "troupe " << verb << ": job " << job.job << " does not answer:";
  for (const auto& door : job.doors) {
    const char state = internal::watch::process_state(door.pid);
    std::cerr << " w" << door.rank << " (process " << door.pid << ") is "
              << (state == 'T'             ? "stopped"
                  : state == 'Z' || !state ? "gone"
                                           : "silent")
              << ";";
  }
  std::cerr << "\n";
}

}  // namespace troupe::tools
