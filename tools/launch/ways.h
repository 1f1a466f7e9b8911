// `troupe ways`: a program of its own that tells which way tensors take between its workers.
#pragma once
#include <string>
#include <vector>

namespace troupe::tools {

/// The verb: arguments after `ways`, to exit code. Started by a launcher, this process is one of its workers,
/// and w0 prints; else it starts workers on this host.
int ways_main(const std::vector<std::string>& arguments);

}  // namespace troupe::tools
