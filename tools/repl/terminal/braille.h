// A line chart in characters, for terminals.
#pragma once
#include <string>

#include "tools/draw/chart.h"

namespace troupe::repl {

/// The chart's lines as dots of braille, two by four in each character, with the range on the left and the
/// names below. `width`, `height`: in characters, at least 10 and 2. Pure.
std::string braille(const tools::Chart& chart, int width, int height);

}  // namespace troupe::repl
