// Text of any origin in errors: on one line, and not too long.
#pragma once
#include <string>
#include <string_view>

namespace troupe {

/// The text with '?' for control characters, cut after `most` bytes.
std::string shown(std::string_view text, size_t most = 200);

/// Throws `invalid` if the name of a file has a NUL byte, where the system would stop reading it. `tag`:
/// "[npy]".
void refuse_nul(std::string_view tag, std::string_view path);

}  // namespace troupe
