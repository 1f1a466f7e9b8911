#include "core/base/standard_output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>
#include <string>
#include <system_error>

#include "core/base/error.h"

namespace troupe {
namespace {

void at_exit(int code, void*) {
  try {
    flush_output();
  } catch (const Error& e) {
    std::fprintf(stderr, "%s: error: %s\n", program_invocation_short_name, e.what());
    if (code == 0) _exit(1);
  }
}

// Of two that are closed, each gets what fails as a closed one does.
void hold_closed_descriptors() {
  for (int fd = 0; fd < 3; ++fd)
    if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

void refuse_size_signal() {
  struct sigaction now {};
  if (sigaction(SIGXFSZ, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) signal(SIGXFSZ, SIG_IGN);
}

}  // namespace

void guard_output() {
  static std::once_flag once;
  std::call_once(once, [] {
    hold_closed_descriptors();
    refuse_size_signal();
    on_exit(at_exit, nullptr);
  });
}

void flush_output() {
  errno = 0;
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return;
  const std::string why = errno ? ": " + std::generic_category().message(errno) : "";
  std::clearerr(stdout);
  __fpurge(stdout);
  throw_error(ErrorKind::failed, "standard output cannot be written" + why);
}

}  // namespace troupe
