#include "tools/launch/restart.h"

#include "tools/launch/ending.h"

namespace troupe::tools {

bool RestartPolicy::worth_one(const Attempt& attempt) const {
  if (attempt.stopped || attempt.done) return false;
  return attempt.killed || attempt.code == kLostPeer || (attempt.code == kNeverMet && (met_ || attempt.met));
}

bool RestartPolicy::take(const Attempt& attempt) {
  const bool again = restarts(attempt);
  met_ |= attempt.met;
  if (attempt.committed) used_ = 0;
  used_ += again;
  return again;
}

}  // namespace troupe::tools
