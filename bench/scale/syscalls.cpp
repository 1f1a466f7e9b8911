#include "bench/scale/syscalls.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
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

}  // namespace

SyscallCounter::SyscallCounter(const std::vector<pid_t>& processes) {
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
  // The kernel lets go of the threads of a tracer that has died.
  if (tracer_ > 0) {
    kill(tracer_, SIGKILL);
    waitpid(tracer_, nullptr, 0);
  }
  if (shared_) munmap(shared_, kMost * sizeof(std::atomic<int64_t>));
}

}  // namespace troupe::bench
