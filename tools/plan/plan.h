// `troupe plan`: how to cut a model over workers.
#pragma once
#include <string>
#include <vector>

namespace troupe::tools {

/// To exit code: 0; 1 where nothing fits, or a file cannot be read or written; 2 for wrong arguments.
int plan_main(const std::vector<std::string>& arguments);

}  // namespace troupe::tools
