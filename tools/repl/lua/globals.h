// The functions and methods that scripts have besides those of script/catalog.h, described.
#pragma once
#include <span>

namespace troupe::repl {

struct HelpEntry {
  const char* name;       ///< "spawn", "context:backward"
  const char* signature;  ///< "spawn(type, worker, ...) -> reference"
  const char* text;
};

/// By theme; a test compares them with what a state has.
std::span<const HelpEntry> globals();
std::span<const HelpEntry> object_methods();

}  // namespace troupe::repl
