// Numbers of bytes for people.
#pragma once
#include <cstdint>
#include <string>

namespace troupe {

/// "512 B", "397.5 KiB".
std::string readable_bytes(int64_t bytes);
/// Numbers as people write them: "2G", "1.5 GiB", "512M", "100": units of 1024. `invalid` for anything else.
int64_t bytes_named(const std::string& text);

}  // namespace troupe
