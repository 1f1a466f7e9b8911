// `troupe join`: one more worker for an elastic job that runs, from wherever it can be reached.
#pragma once
#include <string>
#include <vector>

namespace troupe::tools {

/// The verb: arguments after `join`. Becomes the program where worker 0 gives it a number; else an exit code:
/// 2 for bad arguments or a refusal, 3 if worker 0 was not reached.
int join_main(const std::vector<std::string>& arguments);

}  // namespace troupe::tools
