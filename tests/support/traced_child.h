// A child whose system calls are counted, and in which one of them is the last or fails.
#pragma once
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <optional>

#include "core/base/compiler.h"

namespace troupe::testing {

#if defined(__x86_64__)
inline constexpr bool kCanFailCalls = true;
#else
inline constexpr bool kCanFailCalls = false;  // other processors have other registers
#endif

/// What is to happen at a system call, counted from 1.
struct CallFault {
  long at = 0;    ///< 0: nothing happens, they are counted
  int error = 0;  ///< the call fails with it; 0: the child is killed when it enters the call
};

struct TracedEnd {
  int status = 0;  ///< as waitpid says
  long calls = 0;  ///< entered; with an error, those that may fail
  bool faulted = false;
};

/// Runs f in a child that fork() makes and _exit()s with what f gives. None where processes may not be
/// traced.
template <class F>
std::optional<TracedEnd> in_traced_child(F&& f, CallFault fault = {}) {
  const pid_t child = ::fork();
  if (child < 0) return {};
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(125);
    ::raise(SIGSTOP);
    ::_exit(f());
  }
  TracedEnd end;
  if (::waitpid(child, &end.status, 0) != child || !WIFSTOPPED(end.status)) return {};
  ::ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  bool entered = false, failing = false;
  for (uintptr_t signal = 0;;) {
    ::ptrace(PTRACE_SYSCALL, child, nullptr, signal);
    if (::waitpid(child, &end.status, 0) != child) return {};
    if (!WIFSTOPPED(end.status)) return end;
    signal = 0;
    if (WSTOPSIG(end.status) != (SIGTRAP | 0x80)) {
      signal = static_cast<uintptr_t>(WSTOPSIG(end.status));
      continue;
    }
    entered = !entered;
#if defined(__x86_64__)
    if (fault.error != 0) {
      constexpr long kMayFail[] = {SYS_open,      SYS_openat, SYS_write, SYS_pwrite64,  SYS_fsync,
                                   SYS_linkat,    SYS_rename, SYS_mkdir, SYS_unlink,    SYS_unlinkat,
                                   SYS_ftruncate, SYS_flock,  SYS_rmdir, SYS_getdents64};
      user_regs_struct registers;
      ::ptrace(PTRACE_GETREGS, child, nullptr, &registers);
      if (!entered && failing) {
        registers.rax = static_cast<unsigned long long>(-fault.error);
        ::ptrace(PTRACE_SETREGS, child, nullptr, &registers);
        failing = false;
      } else if (entered &&
                 std::ranges::find(kMayFail, static_cast<long>(registers.orig_rax)) != std::end(kMayFail)) {
        if (++end.calls != fault.at) continue;
        registers.orig_rax = static_cast<unsigned long long>(-1);  // no such call: nothing is done
        ::ptrace(PTRACE_SETREGS, child, nullptr, &registers);
        failing = end.faulted = true;
      }
      continue;
    }
#endif
    if (entered && ++end.calls == fault.at) {
      end.faulted = true;
      ::kill(child, SIGKILL);
    }
  }
}

}  // namespace troupe::testing
