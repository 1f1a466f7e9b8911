#include "bench/scale/syscalls.h"

#include <linux/perf_event.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

namespace troupe::bench {
namespace {

struct Thread {
  pid_t id;
  size_t process;
};

/// Never returns. After a fork of a process with threads: system calls only.
[[noreturn]] void trace(const std::vector<Thread>& threads, std::atomic<int64_t>* stops, int ready) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const Thread& thread : threads)
    if (ptrace(PTRACE_SEIZE, thread.id, nullptr, PTRACE_O_TRACESYSGOOD) != 0 ||
        ptrace(PTRACE_INTERRUPT, thread.id, nullptr, nullptr) != 0)
      _exit(1);
  size_t stopped = 0;
  for (;;) {
    int status = 0;
    const pid_t id = waitpid(-1, &status, __WALL);
    if (id < 0) _exit(0);
    if (!WIFSTOPPED(status)) continue;
    const int signal = WSTOPSIG(status);
    long pass_on = 0;
    if (signal == (SIGTRAP | 0x80)) {
      for (const Thread& thread : threads)
        if (thread.id == id) stops[thread.process].fetch_add(1, std::memory_order_relaxed);
    } else if (status >> 16 == PTRACE_EVENT_STOP) {
      if (++stopped == threads.size() && write(ready, "", 1) != 1) _exit(1);
    } else {
      pass_on = signal;
    }
    ptrace(PTRACE_SYSCALL, id, nullptr, pass_on);
  }
}

std::vector<Thread> threads_of(const std::vector<pid_t>& processes) {
  std::vector<Thread> threads;
  for (size_t i = 0; i < processes.size(); ++i)
    for (const auto& entry :
         std::filesystem::directory_iterator("/proc/" + std::to_string(processes[i]) + "/task"))
      threads.push_back({std::stoi(entry.path().filename()), i});
  return threads;
}

// Null: it may not be counted here.
std::optional<uint64_t> tracepoint() {
  for (const char* root : {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"}) {
    std::ifstream file(std::string(root) + "/events/raw_syscalls/sys_enter/id");
    uint64_t id = 0;
    if (file >> id) return id;
  }
  return {};
}

// The number of the event, or -1.
int count_of(pid_t thread, uint64_t tracepoint) {
  perf_event_attr what{};
  what.type = PERF_TYPE_TRACEPOINT;
  what.size = sizeof what;
  what.config = tracepoint;
  return static_cast<int>(::syscall(SYS_perf_event_open, &what, thread, -1, -1, PERF_FLAG_FD_CLOEXEC));
}

}  // namespace

void SyscallCounter::close_events() {
  for (const Event& e : events_)
    if (e.fd >= 0) close(e.fd);
  events_.clear();
}

int64_t SyscallCounter::count(size_t process) const {
  if (!unnoticed()) return shared_[process].load() / 2;
  int64_t sum = 0;
  for (const Event& e : events_) {
    int64_t calls = 0;
    if (e.process == process && read(e.fd, &calls, sizeof calls) == sizeof calls) sum += calls;
  }
  return sum;
}

SyscallCounter::SyscallCounter(const std::vector<pid_t>& processes) {
  if (const auto id = tracepoint()) {
    for (const Thread& thread : threads_of(processes))
      events_.push_back({count_of(thread.id, *id), thread.process});
    works_ = std::all_of(events_.begin(), events_.end(), [](const Event& e) { return e.fd >= 0; });
    if (works_) return;
    close_events();
  }
  void* memory = mmap(nullptr, kMost * sizeof(std::atomic<int64_t>), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int ends[2];
  if (memory == MAP_FAILED) return;
  shared_ = static_cast<std::atomic<int64_t>*>(memory);
  if (processes.size() > kMost || pipe(ends) != 0) return;
  const auto threads = threads_of(processes);
  tracer_ = fork();
  if (tracer_ == 0) {
    close(ends[0]);
    trace(threads, shared_, ends[1]);
  }
  close(ends[1]);
  char byte = 0;
  works_ = tracer_ > 0 && read(ends[0], &byte, 1) == 1;
  close(ends[0]);
}

SyscallCounter::~SyscallCounter() {
  close_events();
  // The kernel lets go of the threads of a tracer that has died.
  if (tracer_ > 0) {
    kill(tracer_, SIGKILL);
    waitpid(tracer_, nullptr, 0);
  }
  if (shared_) munmap(shared_, kMost * sizeof(std::atomic<int64_t>));
}

}  // namespace troupe::bench
