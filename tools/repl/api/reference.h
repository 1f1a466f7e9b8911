// The reference of all that scripts can name, from the tables.
#pragma once
#include <string>

namespace troupe::repl {

/// As docs/reference/shell.md has it.
std::string reference_text();

}  // namespace troupe::repl
