// How many cores a container's limit leaves to this process (cgroups, version 1 and 2).
#pragma once
#include <functional>
#include <optional>
#include <string>

namespace troupe {

/// The text of a file; empty if it cannot be read.
using ReadFile = std::function<std::optional<std::string>(const std::string& path)>;

/// Cores' worth of time that the groups of this process, and those around them, may use: the least of their
/// quotas, for instance 1.5; empty without any. `read` is asked for /proc/self/cgroup, /proc/self/mountinfo
/// and files of the groups; what cannot be read sets no limit.
std::optional<double> cpu_quota(const ReadFile& read);

}  // namespace troupe
