// `troupe run`: starts the workers, merges their output, ends them all when one fails or when asked.
#pragma once
#include "tools/launch/job.h"
#include "tools/launch/run_options.h"

namespace troupe::tools {

/// Runs the job to its end, with the restarts that `options` allow, and returns the exit code: 0, the failing
/// worker's, or 128 + n when signal n stopped us. Nothing is left afterwards: no process, zombie or file but
/// the logs. Takes over this process's signals; call once, from a program with one thread. Throws `failed`
/// where a process, pipe or log file cannot be made (nothing is left then either).
int run_job(const RunOptions& options, Job job);

/// The verb: arguments after `run`, to exit code.
int run_main(const std::vector<std::string>& arguments);

}  // namespace troupe::tools
