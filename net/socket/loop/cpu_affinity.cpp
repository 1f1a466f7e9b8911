#include "net/socket/loop/cpu_affinity.h"

#include <sched.h>

namespace troupe::internal::net {

uint32_t this_core() {
  const int core = ::sched_getcpu();
  return core < 0 ? 0 : static_cast<uint32_t>(core) + 1;
}

void migrate_cpu() {
  cpu_set_t allowed, others;
  const int core = ::sched_getcpu();
  if (core < 0 || core >= CPU_SETSIZE || ::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  others = allowed;
  CPU_CLR(static_cast<size_t>(core), &others);
  if (CPU_COUNT(&others) == 0 || ::sched_setaffinity(0, sizeof others, &others) != 0) return;
  ::sched_setaffinity(0, sizeof allowed, &allowed);
}

}  // namespace troupe::internal::net
