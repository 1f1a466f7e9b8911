// Looking at running jobs: `troupe ps`, `waits`, and others.
#pragma once
#include <string>
#include <vector>

namespace troupe::tools {

/// Whether `troupe NAME` is a verb of this folder.
bool is_watch_verb(const std::string& name);
/// One of them, to exit code: 0; 1 where a job does not answer; 2 for wrong arguments; 3 where there is no
/// job.
int watch_main(const std::string& verb, const std::vector<std::string>& arguments);

}  // namespace troupe::tools
