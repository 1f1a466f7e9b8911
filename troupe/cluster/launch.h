// The main function of a program that uses a cluster.
#pragma once
#include <functional>

#include "troupe/cluster/cluster.h"

namespace troupe {

/// Exit codes of programs, besides what the driver returns.
inline constexpr int kExitFailed = 1;      ///< an error that is none of the following
inline constexpr int kExitUsage = 2;       ///< bad flag or environment
inline constexpr int kExitRendezvous = 3;  ///< the cluster did not come together
inline constexpr int kExitPeerLost = 4;    ///< a worker was lost
inline constexpr int kExitCheckpoint = 5;  ///< a checkpoint cannot be gone on from (CheckpointRefused)
inline constexpr int kExitInterrupted = 130;

/// Runs `driver` as worker w0; returns the exit code for main:
///
///   int main() { return launch([](Cluster& cluster) { ... }); }
///
/// The same program runs alone (TROUPE_WORKERS workers, default 3, in this process), under `troupe run -n N`
/// or any launcher that sets ranks (see LaunchEnvironment), on one host or several. In processes of other
/// ranks the driver is not called: they serve until the driver has ended and the cluster has been shut down
/// gracefully, within options.shutdown_timeout. An exception of the driver is printed, ends all workers, and
/// becomes the exit code. On Ctrl-C or SIGTERM pending calls fail with `cancelled`, unless a Job or a
/// StopSignal ends the program behind its step, and the exit code is 130 (143); a second signal ends the
/// process at once.
int launch(const std::function<void(Cluster&)>& driver, ClusterOptions options = {});
/// The same for a program with actor types that it makes by name only: hosting<Layer, Server>().
int launch(internal::actors::TypeRegistry hosting, const std::function<void(Cluster&)>& driver,
           ClusterOptions options = {});

}  // namespace troupe
