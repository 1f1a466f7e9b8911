// `troupe data`: files of tokens, made and looked at.
#pragma once
#include <string>
#include <vector>

namespace troupe::tools {

/// Runs it with the arguments behind "data"; its exit code.
int data_main(const std::vector<std::string>& arguments);

}  // namespace troupe::tools
