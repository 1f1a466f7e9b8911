#include "tools/launch/meeting.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <tuple>

#include "core/base/error.h"
#include "core/base/thread.h"
#include "tools/launch/verdict.h"

namespace troupe::tools {
namespace {

// How a child has ended, which it stays to be waited for.
std::optional<Ending> ending_of(int64_t rank, pid_t pid) {
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != pid)
    return std::nullopt;
  const int status = info.si_code == CLD_EXITED ? (info.si_status & 0xff) << 8 : info.si_status & 0x7f;
  return Ending{rank, pid, status};
}

}  // namespace

Meeting::Meeting(std::vector<std::pair<int64_t, pid_t>> workers) : workers_(std::move(workers)) {
  std::tie(over_, end_) = make_pipe();
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  signals_ = Descriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  for (const auto& worker : workers_)  // -1 where the system has none: poll passes over it
    processes_.emplace_back(static_cast<int>(syscall(SYS_pidfd_open, worker.second, 0)));
  thread_ = start_thread("run", [this] { watch(); });
}

Meeting::~Meeting() {
  end_.reset();
  thread_.join();
}

void Meeting::watch() {
  std::vector<pollfd> polled{{over_.get(), POLLIN, 0}, {signals_.get(), POLLIN, 0}};
  for (const auto& process : processes_) polled.push_back({process.get(), POLLIN, 0});
  for (;;) {
    if (poll(polled.data(), polled.size(), -1) < 0) continue;
    if (polled[0].revents) return;
    signalfd_siginfo info;
    if (polled[1].revents && read(signals_.get(), &info, sizeof info) == sizeof info)
      given_up_.fail(Error(ErrorKind::cancelled, "[run] interrupted"));
    for (size_t i = 0; i < workers_.size(); ++i) {
      pollfd& process = polled[2 + i];
      if (!process.revents) continue;
      process.fd = -1;
      if (const auto ending = ending_of(workers_[i].first, workers_[i].second))
        given_up_.fail(Error(ErrorKind::failed, "[run] " + ending->never_joined()));
    }
  }
}

}  // namespace troupe::tools
