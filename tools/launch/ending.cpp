// The consequence of a death is often reaped before the death itself; ranking by kind puts that right.
#include "tools/launch/ending.h"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

namespace troupe::tools {

int Ending::exit_code() const { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

bool Ending::killed() const {
  const int signal = exit_code() - 128;
  if (signal == SIGINT || signal == SIGQUIT || signal == SIGTERM || signal == SIGHUP) return false;
  return signal > 0 && signal <= SIGRTMAX;
}

std::string Ending::text() const {
  const std::string who = host.empty() ? fmt::format("w{} (pid {})", rank, pid)
                                       : fmt::format("w{} (pid {} on {})", rank, pid, host);
  if (!lost.empty()) return who + " was lost: " + lost;
  if (!WIFSIGNALED(status)) return fmt::format("{} exited with code {}", who, WEXITSTATUS(status));
  const char* name = sigabbrev_np(WTERMSIG(status));
  return fmt::format("{} was killed by signal {}{}", who, WTERMSIG(status),
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
