// What a worker tells of itself to who watches, as the text that a door passes on.
#pragma once
#include <string>

#include "actors/worker/service.h"

namespace troupe::internal::watch {

/// Door to all workers: what does it do? Its part of the answer, a JSON object, which nobody on the way takes
/// apart.
inline constexpr actors::Service<std::string()> kReportText{"watch.report"};

/// Part of every worker's set-up.
void install_report_text(actors::Worker& worker);

}  // namespace troupe::internal::watch
