// What the workers did in a profile, as a picture.
#pragma once
#include <string>

#include "troupe/profile.h"

namespace troupe::tools {

/// For each worker a row of its work, the methods that it handled and its parts of backward passes, and under
/// it as many rows as it takes for the operations of groups that were under way: what is below an operation
/// in time overlaps with it. A box of an operation has the end of its tag. As SVG text. `width` in pixels,
/// 240 to 20,000 (else `invalid`). Pure.
std::string render_trace(const Trace& trace, const std::string& title, int width = 960);

/// Writes render_trace() as write_picture() does.
void write_trace(const std::string& path, const Trace& trace, const std::string& title);

}  // namespace troupe::tools
