// Waiting until nothing is under way in the whole cluster.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "actors/worker/worker.h"

namespace troupe::internal::actors {

/// Blocks until no call, no job of an actor and no backward pass is under way on any living worker, nor a
/// message on its way between two. Nothing then starts by itself: only threads of programs start something.
/// `deadline` names what is under way and who does not answer; `disconnected` a worker that was lost
/// meanwhile, once the others are at rest; `cancelled` if the worker was interrupted or stopped.
std::optional<Error> quiesce(Worker& worker, TimePoint deadline);

/// What failed on all living workers and nobody was told of, once: who asks tells the user.
std::vector<std::string> take_unheard(Worker& worker, TimePoint deadline);

/// The things alive on all living workers: labels of actors ("Layer#0:3 on w1"), and counts of contexts.
std::vector<std::string> alive_everywhere(Worker& worker, TimePoint deadline);

}  // namespace troupe::internal::actors
