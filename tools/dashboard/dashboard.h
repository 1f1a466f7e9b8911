// `troupe dashboard`: a page about a running job, for a browser on this host.
#pragma once
#include <string>
#include <vector>

namespace troupe::tools {

/// The verb, to exit code: serves until Ctrl-C, SIGTERM, or the end of the job.
int dashboard_main(const std::vector<std::string>& arguments);

/// The page as it is served: one file, which asks for everything else by itself.
const char* dashboard_page();

}  // namespace troupe::tools
