#include "core/base/stdout.h"

#include <signal.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>

#include "core/base/error.h"

namespace troupe {

void flush_output() {
  errno = 0;
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return;
  const std::string why = errno ? ": " + std::generic_category().message(errno) : "";
  std::clearerr(stdout);
  throw_error(ErrorKind::failed, "standard output cannot be written" + why);
}

void refuse_size_signal() {
  struct sigaction now {};
  if (sigaction(SIGXFSZ, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) signal(SIGXFSZ, SIG_IGN);
}

}  // namespace troupe
