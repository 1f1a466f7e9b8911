// The consequence of a death is often reaped before the death itself; ranking by kind puts that right.
#include "tools/launch/ending.h"

#include <fmt/format.h>
#include <string.h>
#include <sys/wait.h>

namespace troupe::tools {

int Ending::exit_code() const { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

std::string Ending::text() const {
  if (!WIFSIGNALED(status))
    return fmt::format("w{} (pid {}) exited with code {}", rank, pid, WEXITSTATUS(status));
  const char* name = sigabbrev_np(WTERMSIG(status));
  return fmt::format("w{} (pid {}) was killed by signal {}{}", rank, pid, WTERMSIG(status),
                     name ? fmt::format(" (SIG{})", name) : "");
}

std::string Ending::never_joined() const {
  return text() + " before it had joined the cluster that " + (rank ? "w0 was" : "the others were") +
         " waiting for";
}

std::optional<Ending> likely_cause(const std::vector<Ending>& seen) {
  auto weight = [](const Ending& e) {
    return WIFSIGNALED(e.status) ? 3 : e.exit_code() == kLostPeer ? 1 : 2;
  };
  std::optional<Ending> best;
  for (const auto& ending : seen)
    // Worker 0 hands its code to the others, which may end before it.
    if (ending.failed() &&
        (!best || weight(ending) > weight(*best) ||
         (ending.rank == 0 && !WIFSIGNALED(ending.status) && ending.status == best->status)))
      best = ending;
  return best;
}

}  // namespace troupe::tools
