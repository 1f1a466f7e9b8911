// What to write instead, for people who know Python better than Lua.
#pragma once
#include <string>

namespace troupe::repl {

/// What to add to an error of Lua, beginning with "; ", or nothing. `text` is the chunk, which may be long.
std::string hint(const std::string& error, const std::string& text);

/// The same where a line is a name alone whose value is nil.
std::string hint_for_nil(const std::string& text);

/// Whether a line opens a block as Python does, "for x in y:": Lua would wait for its end for ever.
bool opens_python_block(const std::string& text);

}  // namespace troupe::repl
