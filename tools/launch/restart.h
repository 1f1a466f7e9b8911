// When a job whose processes have ended is started again.
#pragma once
#include <cstdint>

namespace troupe::tools {

/// How all processes of a job came to their end.
struct Attempt {
  int code = 0;            ///< that the job would end with
  bool killed = false;     ///< a process, or what keeps them all, was ended by a signal that asks nobody
  bool met = false;        ///< all workers had come together
  bool committed = false;  ///< worker 0 told of a checkpoint
  bool done = false;       ///< the driver had come to its end
  bool stopped = false;    ///< somebody wanted the end: Ctrl-C, SIGTERM, an output that nobody reads any more
};

/// A pure count of restarts. What another start may mend is worth one: a process that was killed, a worker
/// that was lost (code 4), or, once there had been a cluster, one that did not come together (code 3). Errors
/// and ends are not. Only restarts without a checkpoint between them are counted against `most`.
class RestartPolicy {
 public:
  explicit RestartPolicy(int64_t most) : most_(most) {}

  /// Whether an attempt that ends like this is followed by another.
  bool restarts(const Attempt& attempt) const {
    return worth_one(attempt) && (attempt.committed ? most_ > 0 : used_ < most_);
  }
  /// The same, and counts it.
  bool take(const Attempt& attempt);
  /// Whether restarts had mended it, if any were left.
  bool worth_one(const Attempt& attempt) const;

  int64_t most() const { return most_; }
  /// Since the last checkpoint, the one that was taken last included.
  int64_t used() const { return used_; }

 private:
  const int64_t most_;
  int64_t used_ = 0;
  bool met_ = false;  // an attempt before
};

}  // namespace troupe::tools
