// What makes a job slow, from two looks at it: who is slower than its equals, who gets no core, who is full.
#pragma once
#include <string>
#include <vector>

#include "tools/watch/report.h"

namespace troupe::tools {

/// Sentences, the heaviest first: of methods that take 1.5 times as long on one worker as on the others, of
/// workers that want a core and get none, of queues that grow. Empty if nothing stands out.
std::vector<std::string> verdicts(const JobReport& before, const JobReport& now);

}  // namespace troupe::tools
