// Which of several failed workers is the one to report.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe::tools {

/// The exit code of a worker that ended because it lost another one: a consequence, seldom the cause.
inline constexpr int kLostPeer = 4;

/// That of a job whose workers did not all come together, as of a worker that waited in vain.
inline constexpr int kNeverMet = 3;

/// How one worker ended.
struct Ending {
  int64_t rank = 0;
  pid_t pid = 0;
  int status = 0;    ///< as from waitpid
  std::string host;  ///< empty: this one
  std::string lost;  ///< why nobody saw how it ended; empty: somebody did

  bool failed() const { return status != 0; }
  /// Ended by a signal, or as a shell tells of one by 128 + n, that does not ask for the end as Ctrl-C and
  /// SIGTERM do.
  bool killed() const;
  /// 128 + n for signal n.
  int exit_code() const;
  /// "w2 (pid 123) was killed by signal 9 (SIGKILL)"
  std::string text() const;
  /// The same of one that others, or worker 0, wait for in vain: "w2 (pid 123) exited with code 7 before it
  /// had joined the cluster that w0 was waiting for".
  std::string never_joined() const;
};

/// The likely cause among endings that came together, in the order in which they were seen: a signal before
/// an exit code before kLostPeer, then worker 0 before those that end with its code, then the first seen.
/// Empty if none failed.
std::optional<Ending> likely_cause(const std::vector<Ending>& seen);

}  // namespace troupe::tools
