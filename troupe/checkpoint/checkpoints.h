// Where a job keeps its checkpoints, and what it throws of one that does not do.
#pragma once
#include <cstdint>
#include <string>

#include "core/base/error.h"

namespace troupe {

struct Checkpoints {
  std::string dir;      ///< a folder that all workers see; empty: none are made
  bool resume = false;  ///< go on from the newest one in it; without any, begin
  /// Steps from one to the next; 0: at least 10 s, and 30 times as long as the last one took, so that they
  /// cost 3 % of the time at most.
  int64_t every = 0;
  int64_t keep = 2;          ///< so many of the newest stay
  bool unwitnessed = false;  ///< steps that are made again may come to other losses (Job::check)
  bool by_flags = false;     ///< these are --checkpoint and --resume of a command, which texts then name
};

/// A checkpoint cannot be gone on from: kExitCheckpoint of launch().
class CheckpointRefused final : public Error {
 public:
  using Error::Error;
};

}  // namespace troupe
