// Numbers of bytes for people.
#pragma once
#include <cstdint>
#include <string>

namespace troupe {

/// "512 B", "397.5 KiB".
std::string readable_bytes(int64_t bytes);

}  // namespace troupe
