// A job becomes what it was in a checkpoint.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "troupe/checkpoint/given.h"
#include "troupe/job/job_workers.h"

namespace troupe::internal {

constexpr const char* kDriver = "driver";

struct LoadedJob {
  std::map<std::string, std::string> layout;  ///< each actor, and its worker
  bool repeat = true;                         ///< steps that are made again have their bits
  Given given;                                ///< when the job began
};

/// "the newest is of step 12", of a folder of checkpoints.
std::string newest_in(const std::string& dir);
/// What a loop throws whose last step could not be saved.
Error ended_unsaved(int64_t step, const std::string& dir, const Error& why);
/// What this program has given the driver and all actors. At rest, before the loop.
Given given_everywhere(JobWorkers& workers);
/// From the checkpoint of a step in `dir`, on all workers, where the job is called `name`. `total`: steps of
/// the loop; `given`: now, and what of it is not taken is said. CheckpointRefused, with the program good for
/// nothing, if it does not fit or is not as it was written.
LoadedJob load_job(JobWorkers& workers, const std::string& dir, const std::string& name, int64_t step,
                   int64_t total, const Given& given);

}  // namespace troupe::internal
