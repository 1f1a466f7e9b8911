// tcsetpgrp, with the checks around it.
#include "tools/launch/terminal.h"

#include <signal.h>
#include <unistd.h>

namespace troupe::tools {

Terminal::Terminal(pid_t group)
    : group_(group),
      used_(isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp()) {
  if (used_) signal(SIGTTOU, SIG_IGN);  // else taking the terminal back would stop us
  give();
}

void Terminal::give() {
  if (used_ && tcgetpgrp(STDIN_FILENO) == getpgrp()) tcsetpgrp(STDIN_FILENO, group_);
}

void Terminal::take() {
  if (used_ && tcgetpgrp(STDIN_FILENO) == group_) tcsetpgrp(STDIN_FILENO, getpgrp());
}

}  // namespace troupe::tools
