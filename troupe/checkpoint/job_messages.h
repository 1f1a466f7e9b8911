// The messages by which a job's checkpoints are made and loaded.
#pragma once
#include "actors/worker/service.h"
#include "core/codec/plain_struct.h"
#include "data/checkpoint/checkpoint_index.h"
#include "troupe/checkpoint/given.h"

namespace troupe::internal {

using JobFiles = std::vector<datasets::CheckpointFile>;
/// The actors of a worker.
struct JobActors {
  std::vector<std::string> paths;
  /// Steps that are made again come to the same bits: no server has a policy that looks at who comes first.
  bool repeat = true;
  /// Of actors that have a model together with others, as families (owned_pieces.h); and what they have taken
  /// of a checkpoint's models, "Model#" and a name. When one is loaded.
  std::vector<std::string> families = {}, taken = {};
};

/// Driver to all workers, at rest, before the loop: which numbers their actors were given, by actor.
inline constexpr actors::Service<Given()> kGiven{"job.given", {.timeout = Duration::zero()}};
/// Driver to all workers, at rest: they keep what their actors have now, until it is written.
/// (`process`: the driver's.)
inline constexpr actors::Service<JobActors(uint64_t process)> kTakeSnapshot{"job.snapshot",
                                                                            {.timeout = Duration::zero()}};
/// Driver to all workers: they write their snapshots, for the checkpoint of a step. What they have written.
/// (`job`: a folder within the one that they know, or empty.)
inline constexpr actors::Service<JobFiles(std::string job, int64_t step)> kWriteSnapshot{
    "job.write", {.timeout = Duration::zero()}};
/// Driver to all workers: their snapshots are not needed.
inline constexpr actors::Service<void()> kDropSnapshot{"job.drop"};
/// Driver to all workers, at rest: their actors become as they were in a checkpoint.
inline constexpr actors::Service<JobActors(std::string job, int64_t step)> kLoadCheckpoint{
    "job.load", {.timeout = Duration::zero()}};

/// Worker to the driver: a signal asks it for its end. Whether the driver ends by itself, soon; the worker
/// serves until then.
inline constexpr actors::Service<bool(int64_t signal)> kAskToStop{"job.stop",
                                                                  {.timeout = std::chrono::seconds(1)}};
/// Driver to a worker of an elastic job that has asked so: nothing of the job is on it any more.
inline constexpr actors::Service<void()> kLetGo{"job.let_go"};

}  // namespace troupe::internal
