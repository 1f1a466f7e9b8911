// A worker counts its calls, and tells those who ask.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "actors/calls/quiescence.h"
#include "actors/worker/service.h"

namespace troupe::internal::actors {

/// The worker that ends the cluster, to all: is anything under way? Whom the asker has lost is lost to the
/// one asked as well. These questions are not counted.
inline constexpr Service<TrafficReport(std::vector<WorkerId> lost)> kTraffic{"cluster.traffic"};
/// The worker that ends the cluster, to all: the end does not come to rest, or something is left. Texts about
/// what is alive.
inline constexpr Service<std::vector<std::string>()> kAlive{"cluster.alive"};
/// The worker that ends the cluster, to all: it is at rest. Texts about what failed, and nobody was told of.
inline constexpr Service<std::vector<std::string>()> kUnheard{"cluster.unheard"};

/// Makes the worker count, and adds the services. Part of its construction.
void install_traffic(Worker& worker);

}  // namespace troupe::internal::actors
