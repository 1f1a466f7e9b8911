// Texts from files and from other programs, for error texts: what a terminal would obey is written out.
#pragma once
#include <string>
#include <string_view>

namespace troupe {

/// Control characters as "\r", "\x1b" and so on; those of `kept` as they are.
std::string visible(std::string_view text, std::string_view kept = {});

/// The same in quotes: at most `most` bytes of it, in whole characters of UTF-8, and "..." if there are more.
std::string in_quotes(std::string_view text, size_t most = 40);

}  // namespace troupe
