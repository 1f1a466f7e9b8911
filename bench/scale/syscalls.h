// Counts the system calls of whole processes, from outside.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <vector>

namespace troupe::bench {

/// From the constructor to the destructor, of all threads that these processes have now. By the kernel's
/// tracepoint of system calls, where it may be counted (tracefs is mounted, and this is root); else a child
/// of this process traces them, and every system call takes some microseconds more meanwhile.
class SyscallCounter {
 public:
  explicit SyscallCounter(const std::vector<pid_t>& processes);
  ~SyscallCounter();
  SyscallCounter(const SyscallCounter&) = delete;

  /// False if the system does not allow it, or for more than kMost processes.
  bool works() const { return works_; }
  /// Whether system calls take as long as ever.
  bool unnoticed() const { return !events_.empty(); }
  /// System calls of a process so far.
  int64_t count(size_t process) const;

  static constexpr size_t kMost = 8;

 private:
  struct Event {
    int fd;
    size_t process;
  };
  void close_events();

  std::vector<Event> events_;               // one for each thread
  std::atomic<int64_t>* shared_ = nullptr;  // stops of each process: one before a system call, one after it
  pid_t tracer_ = -1;
  bool works_ = false;
};

}  // namespace troupe::bench
