// A thread that is in the middle of something, and may not run others' work while it waits.
#pragma once

namespace troupe {

/// While one lives, its thread delivers nothing when it waits: what it has begun has to end before anything
/// else may run on it.
class NoReentry {
 public:
  NoReentry();
  ~NoReentry();
  NoReentry(const NoReentry&) = delete;
};

}  // namespace troupe
