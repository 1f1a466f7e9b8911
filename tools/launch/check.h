// What `troupe run --check` says.
#pragma once
#include <string>

#include "tools/launch/job.h"

namespace troupe::tools {

/// This host, what a launcher around us would make of a program, and what `troupe run` with these options
/// would do. Hosts answer for themselves.
std::string check_text(const RunOptions& options, const Job& job);

/// "a, as this host", "b, by: ssh -T ... b 'exec ...'".
std::string way_to(const RunOptions& options, int64_t node);

}  // namespace troupe::tools
