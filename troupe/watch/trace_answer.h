// A door's answer to who wants a trace of a job that runs.
#pragma once
#include <string>

#include "troupe/watch/questions.h"

namespace troupe::internal {

/// "0.5": seconds; "20 steps": of the worker that is asked, for a minute at most; behind either " with
/// operators", to have them noted. A file of Trace::json(),
/// which has the calls that were under way.
std::string trace_of(const std::string& arguments, watch::Questions& questions);

}  // namespace troupe::internal
