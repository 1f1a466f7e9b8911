// The line at which people type: editing, history, completion.
#pragma once
#include <string>

#include "tools/repl/lua/interpreter.h"

namespace troupe::repl {

/// What some editors put before a text.
inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

/// Reads lines from the terminal and runs them until end of file. Interrupts end what runs, and clear the
/// line.
void read_eval_print(Interpreter& interpreter);

/// The same of lines from standard input that is no terminal, shown with their prompts, so that the output
/// reads as a session at a terminal.
void replay(Interpreter& interpreter);

/// What a line at the prompt becomes: `local x = 1` keeps x for the lines that follow, and `local step
/// <close> = context()` stays open until step:close(). In blocks nothing changes.
std::string at_prompt(const std::string& text);

}  // namespace troupe::repl
