// Tables for people.
#pragma once
#include <string>
#include <vector>

namespace troupe::internal {

/// Lines of columns as wide as what they hold, without blanks at their ends. All rows have as many cells as
/// the first. `numbers`: columns but the first are aligned at the right.
std::string text_table(const std::vector<std::vector<std::string>>& rows, bool numbers = false);

}  // namespace troupe::internal
