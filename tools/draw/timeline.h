// What a step of a pipeline did, as a picture and as a trace that browsers can show.
#pragma once
#include <string>

#include "parallel/pipeline/step_report.h"

namespace troupe::tools {

/// A row for each worker, a box for each action with the number of its micro-batch; darker boxes are later
/// chunks. As SVG text. `width` in pixels, 240 to 20,000 (else `invalid`). Pure.
std::string render_timeline(const parallel::StepReport& report, int width = 960);

/// Writes render_timeline() as write_picture() does.
void write_timeline(const std::string& path, const parallel::StepReport& report);

/// The same as Chrome's trace format, for chrome://tracing or ui.perfetto.dev: a row for each worker, and an
/// arrow for each message from the action that sent it to the one that used it. Pure.
std::string chrome_trace(const parallel::StepReport& report);
/// Writes it as write_picture() does.
void write_chrome_trace(const std::string& path, const parallel::StepReport& report);

}  // namespace troupe::tools
