// Metrics of jobs in Prometheus's text format.
#pragma once
#include <string>
#include <vector>

#include "tools/watch/report.h"

namespace troupe::tools {

/// All workers that answered, with what each metric is in HELP; names end as Prometheus wants them: seconds,
/// bytes, and _total for what only grows.
std::string prometheus_text(const std::vector<JobReport>& jobs);

}  // namespace troupe::tools
