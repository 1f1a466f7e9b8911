#include "troupe/job/job_load.h"

#include <fmt/format.h>

#include "core/base/build_id.h"
#include "core/base/log.h"
#include "data/checkpoint/checkpoint_files.h"
#include "ops/environment.h"
#include "troupe/checkpoint/checkpoints.h"
#include "troupe/checkpoint/job_messages.h"
#include "troupe/checkpoint/owned_pieces.h"

namespace troupe::internal {
namespace {

// How sure it is that steps come to the same bits as before; what may differ is said.
bool same_surroundings(const datasets::CheckpointIndex& index, const std::string& dir, int64_t world) {
  if (index.program != build_id())
    log::warning("[job] " + dir + " was written by another build of the program");
  if (index.instructions != ops::cpu_levels())
    log::warning("[job] " + dir + " was written with the instructions " + index.instructions +
                 ", here they are " + ops::cpu_levels() + ": sums may differ in the last bit");
  // Who sums what in which order may be another matter then.
  return index.program == build_id() && index.instructions == ops::cpu_levels() && index.world == world;
}

LoadedJob load_all(JobWorkers& workers, const std::string& dir, const std::string& name, int64_t step,
                   int64_t total, const Given& given) {
  const datasets::Checkpoint checkpoint(datasets::checkpoint_path(dir, step));
  const auto& index = checkpoint.index();
  if (step > total)
    throw_invalid("[job] the loop ends at step " + std::to_string(total) +
                  ", and the newest checkpoint is of step " + std::to_string(step));
  LoadedJob out{.repeat = same_surroundings(index, dir, workers.world()), .given = index.given};
  TakenModels taken;
  for (const auto& [worker, actors] : workers.ask_all(kLoadCheckpoint, name, step)) {
    for (const std::string& path : actors.paths) out.layout[path] = worker;
    out.repeat = out.repeat && actors.repeat;
    taken.families.insert(actors.families.begin(), actors.families.end());
    taken.names.insert(actors.taken.begin(), actors.taken.end());
  }
  out.repeat = taken.check_all_of(checkpoint, out.layout) && out.repeat;  // fewer sum in another order
  load_driver({checkpoint.tensors(std::string(kDriver) + ".", true),
               checkpoint.tensors(std::string(kDriver) + ".", false)});
  if (const std::string others = given_otherwise(index.given, given); !others.empty())
    log::warning("[job] what the checkpoint of step " + std::to_string(step) + " in " + dir +
                 " has is taken, and not what this program gives: " + others +
                 ". Set within the loop what is to change");
  return out;
}

}  // namespace

std::string newest_in(const std::string& dir) {
  try {
    const auto steps = datasets::committed_steps(dir);
    return steps.empty() ? "there is none yet" : "the newest is of step " + std::to_string(steps.back());
  } catch (const Error& e) {  // of a disk that does not even say that
    return e.what();
  }
}

Error ended_unsaved(int64_t step, const std::string& dir, const Error& e) {
  std::string why = e.message();
  if (e.kind() == ErrorKind::disconnected)
    why = "it would have all actors that were there when the loop began, and " +
          (e.worker().empty() ? "a worker" : e.worker()) + " had some of them: " + why;
  return {e.kind(),
          fmt::format("[job] the loop ends with step {}, which is in no checkpoint of {} ({}): {}", step, dir,
                      newest_in(dir), why),
          e.trail(), e.worker()};
}

Given given_everywhere(JobWorkers& workers) {
  Given out;
  out[kDriver] = given_in(state_of_driver().rest);
  for (auto& [worker, actors] : workers.ask_all(kGiven)) out.merge(actors);
  return out;
}

LoadedJob load_job(JobWorkers& workers, const std::string& dir, const std::string& name, int64_t step,
                   int64_t total, const Given& given) {
  try {
    return load_all(workers, dir, name, step, total, given);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::disconnected || e.kind() == ErrorKind::cancelled) throw;
    throw CheckpointRefused(ErrorKind::invalid, "[job] the checkpoint of step " + std::to_string(step) +
                                                    " in " + dir + " is refused: " + e.what() +
                                                    datasets::other_checkpoints(dir, step));
  }
}

}  // namespace troupe::internal
