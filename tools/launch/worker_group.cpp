// The keeper's number is the group's; whoever is orphaned becomes ours, so that all can be waited for.
#include "tools/launch/worker_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/error.h"

namespace troupe::tools {

void WorkerGroup::open(std::initializer_list<int> also) {
  for (int fd = 0; fd < 3; ++fd)  // a pipe must not become one of these
    if (fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) < 0)
      throw_error(ErrorKind::failed, "[run] /dev/null cannot be opened");
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (int signal : also) sigaddset(&set, signal);
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);  // nohup stays in force
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a log file as large as it may be is an error of its own
  signals_ = Descriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) throw_error(ErrorKind::failed, fmt::format("[run] no signalfd: {}", std::strerror(errno)));
  // Grandchildren whose parent is gone become ours: they can be waited for after the kill.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  id_ = start_keeper();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    files_ = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  nothing_ = Descriptor(::open("/dev/null", O_RDWR | O_CLOEXEC));
}

bool WorkerGroup::next_signal(signalfd_siginfo& info) {
  return read(signals_.get(), &info, sizeof info) == sizeof info;
}

pid_t WorkerGroup::start(Start start) const {
  start.group = id_;
  start.files = files_;
  return start_process(start);
}

void WorkerGroup::signal_all(int signal) const {
  if (!keeper_ended_ && id_) kill(-id_, signal);
}

bool WorkerGroup::reap(const std::function<void(pid_t, int)>& on_ended) {
  bool lost = false;
  for (;;) {
    siginfo_t next{};
    if (waitid(P_ALL, 0, &next, WEXITED | WNOHANG | WNOWAIT) != 0 || next.si_pid == 0) return lost;
    if (next.si_pid == id_) {
      // Somebody killed the keeper. While it is not yet waited for, its number still means our group.
      kill(-id_, SIGKILL);
      lost = keeper_ended_ = true;
    }
    int status = 0;
    waitpid(next.si_pid, &status, 0);
    if (next.si_pid != id_) on_ended(next.si_pid, status);
  }
}

void WorkerGroup::sweep() {
  if (id_) {
    signal_all(SIGKILL);  // the keeper, and what the workers left behind
    while (waitpid(-id_, nullptr, 0) > 0 || errno == EINTR) {
    }
  }
  id_ = 0;
  rlimit limit{};
  if (files_ && getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = std::exchange(files_, 0);  // whoever comes next gets this one again
    setrlimit(RLIMIT_NOFILE, &limit);
  }
}

}  // namespace troupe::tools
