// `troupe run --rehearse`: shows before a long run that a program survives what may kill it.
#pragma once
#include <functional>

#include "tools/launch/run_options.h"

namespace troupe::tools {

/// Runs the first steps of a program twice, and kills it in between the second time; compares what both end
/// with, and names what differs. The exit code: 0, kExitCheckpoint if something differs, or that of a run
/// that failed. `run_job` runs a job to its end, as run_job().
int rehearse(RunOptions options, const std::function<int(const RunOptions&)>& run_job);

}  // namespace troupe::tools
