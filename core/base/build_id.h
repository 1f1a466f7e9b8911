// Which build of a program this is.
#pragma once
#include <string>

namespace troupe::internal {

/// Of this program's file: what the linker wrote as its build id, in hexadecimal; without one, its size.
std::string build_id();

}  // namespace troupe::internal
