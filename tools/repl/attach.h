// `troupe repl --attach`: the shell as a guest of a job that runs.
#pragma once
#include <memory>
#include <string>

#include "troupe/cluster/cluster.h"

namespace troupe::repl {

/// The cluster of that job of this user on this host, by what its name or its program's begins with. Null:
/// what is wrong has been said. Throws as attach().
std::unique_ptr<Cluster> attach_to(const std::string& job, const ClusterOptions& options);
/// The shell's first line then.
void say_attached(const Cluster& cluster);

}  // namespace troupe::repl
