// A cluster's worker processes, started by its driver.
#pragma once
#include <signal.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/async/future.h"
#include "tools/launch/ending.h"
#include "troupe/launch/launch_environment.h"

namespace troupe::tools {

/// Worker processes that this one has started. They die with it, and with the thread that started them.
class WorkerProcesses {
 public:
  WorkerProcesses() = default;
  WorkerProcesses(WorkerProcesses&& o) noexcept : running_(std::exchange(o.running_, {})) {}
  WorkerProcesses& operator=(WorkerProcesses&& o) noexcept {
    std::swap(running_, o.running_);
    return *this;
  }
  ~WorkerProcesses() { end(); }
  void add(int64_t rank, pid_t pid) { running_.push_back({rank, pid, 0}); }
  pid_t group() const { return running_.empty() ? 0 : running_[0].pid; }
  /// One that has ended.
  std::optional<Ending> take_ended();
  void ask_to_end();
  /// They end by themselves when the cluster has ended; whoever does not is killed.
  void end();

 private:
  std::vector<Ending> running_;
};

struct StartedWorkers {
  WorkerProcesses processes;
  LaunchEnvironment environment;  ///< of worker 0, which this process is
};
/// Starts workers 1 to n - 1 of a cluster of n, and says where they meet. Ctrl-C at the terminal is not for
/// them.
StartedWorkers start_workers(int64_t workers, const std::string& program,
                             const std::vector<std::string>& arguments);

/// SIGINT blocked, or not, on this thread for a scope, and on the threads that it makes meanwhile.
class SignalMask {
 public:
  explicit SignalMask(int how) {
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(how, &interrupt, &before_);
  }
  ~SignalMask() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalMask(const SignalMask&) = delete;

 private:
  sigset_t before_{};
};

/// While workers come together: a Ctrl-C, or the end of one of them, ends the wait. SIGINT is blocked.
class JoinWatch {
 public:
  explicit JoinWatch(WorkerProcesses& processes);
  ~JoinWatch();
  JoinWatch(const JoinWatch&) = delete;
  Future<void> stop() const { return stop_.future(); }
  bool interrupted() const { return interrupted_; }

 private:
  void watch();
  void give_up(const std::string& why);
  WorkerProcesses& processes_;
  Promise<void> stop_;
  std::atomic<bool> done_{false}, interrupted_{false};
  std::thread thread_;
};

}  // namespace troupe::tools
