// Whether the workers that this process has started still come, while it waits for them as worker 0.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "core/async/future.h"
#include "tools/launch/process.h"

namespace troupe::tools {

/// Watches from a thread of its own:
///
///   Meeting meeting({{1, pid_of_w1}, {2, pid_of_w2}});
///   auto cluster = Cluster::coordinate(environment, {}, options, meeting.given_up());
class Meeting {
 public:
  /// Rank and process of each; children of this process, which are not waited for here. SIGINT is blocked on
  /// all threads as long as this is alive, and is taken from there.
  explicit Meeting(std::vector<std::pair<int64_t, pid_t>> workers);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  /// Fails once one of them has ended, naming it and its exit code (`failed`), or at a SIGINT (`cancelled`).
  Future<void> given_up() const { return given_up_.future(); }

 private:
  void watch();
  std::vector<std::pair<int64_t, pid_t>> workers_;
  std::vector<Descriptor> processes_;  // their descriptors, in this order
  Descriptor signals_, over_, end_;    // over_ is readable once end_ is closed
  Promise<void> given_up_;
  std::thread thread_;
};

}  // namespace troupe::tools
