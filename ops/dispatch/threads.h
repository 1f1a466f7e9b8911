// How many threads one operator may use.
#pragma once

namespace troupe::ops {

/// Threads that one operator may use, its caller included. One number for the whole process: what
/// set_num_threads() said; else TROUPE_NUM_THREADS; else the cores that this process may run on, divided by
/// the workers on this host (LOCAL_WORLD_SIZE; where no launcher says it, those of the cluster that are here)
/// and by those in this process; at least 1. Results have the same bits whatever it is. `invalid` if a
/// variable is no number from 1 to 1024.
int num_threads();
/// `invalid` unless 1 <= n <= 1024.
void set_num_threads(int n);

}  // namespace troupe::ops

namespace troupe::internal {

/// Processes of the cluster that are on this host, this one included.
void set_processes_here(int processes);

/// Says, while it lives, that `workers` workers of this process may compute at the same time.
class SharedCores {
 public:
  explicit SharedCores(int workers);
  ~SharedCores();
  SharedCores(const SharedCores&) = delete;
  SharedCores& operator=(const SharedCores&) = delete;

 private:
  int workers_;
};

}  // namespace troupe::internal
