// A job that is rehearsed: few steps, many checkpoints, and kills where they are told to come.
#pragma once
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "troupe/checkpoint/checkpoints.h"

namespace troupe::internal {

struct Rehearsal {
  static constexpr const char* kVariable = "TROUPE_REHEARSAL";
  static constexpr int64_t kEvery = 4;  ///< steps from one checkpoint to the next

  int64_t steps = 0;  ///< the job ends behind that one
  std::vector<int64_t>
      kills;        ///< behind which step the driver is killed: at first, after the first restart, ...
  std::string dir;  ///< of the checkpoints

  /// "12:6,9:/tmp/folder"
  std::string str() const;
  /// `invalid` for another text.
  static Rehearsal parse(const std::string& text);
  /// What TROUPE_REHEARSAL says; none without it.
  static std::optional<Rehearsal> current();
};

/// How often `troupe run` has started all workers before.
int64_t restarts();
/// Whether a launcher, any, has started this job before: what is in its folder is its own.
bool started_again();
/// The driver's function begins again, in this process.
void note_started_again();
/// What a program asks for, or what its rehearsal does.
Checkpoints rehearsed(Checkpoints checkpoints);

/// Thrown out of the loop of a job once its rehearsal is done; the program ends with code 0.
struct RehearsalEnd : std::exception {
  const char* what() const noexcept override { return "the rehearsal is done"; }
};

}  // namespace troupe::internal
