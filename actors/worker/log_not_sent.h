// Messages without an answer that could not be sent: the log is the place to say so.
#pragma once
#include "core/base/error.h"

namespace troupe::internal::actors {

/// Where a worker was lost, the line that names it stands above those of the messages to it.
void log_not_sent(const Error& why);

}  // namespace troupe::internal::actors
