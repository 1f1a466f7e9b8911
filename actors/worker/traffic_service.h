// A worker counts its calls, and tells those who ask.
#pragma once

namespace troupe::internal::actors {

class Worker;

/// Makes the worker count, and adds the services. Part of its construction.
void install_traffic(Worker& worker);

}  // namespace troupe::internal::actors
