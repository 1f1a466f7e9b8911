// What the verbs that look at running jobs have in common, and the verbs.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tools/flags/flags.h"
#include "troupe/watch/running_job.h"

namespace troupe::tools {

using internal::watch::program_of, internal::watch::running_jobs, internal::watch::RunningJob;

/// The job that is asked, and how the answer is printed.
struct Asking {
  std::string verb;
  std::vector<std::string> which;
  bool json = false;
  std::vector<RunningJob> jobs;
  /// Fills `jobs`, with one only if `one`. The exit code if there is nothing to ask, which has been said.
  std::optional<int> find(bool one);
  /// Says what the system knows of the processes of a job of which none answers.
  void say_silent(const RunningJob& job) const;
};

using Verb = int(Asking&, Flags&, const std::vector<std::string>& arguments);
Verb ps_main, top_main, waits_main, logs_main, trace_main, metrics_main;

}  // namespace troupe::tools
