// The processes of one host that end together.
#pragma once
#include <sys/signalfd.h>

#include <functional>
#include <initializer_list>

#include "tools/launch/process.h"

namespace troupe::tools {

/// A process group with its keeper, and the signals of the process that has it: one at a time for each
/// program, which has one thread.
class WorkerGroup {
 public:
  ~WorkerGroup() { sweep(); }

  /// Takes over this process's signals and starts the keeper. `also`: signals to read besides that of
  /// children's ends. Throws `failed`.
  void open(std::initializer_list<int> also);
  int signals() const { return signals_.get(); }
  /// The next signal that came, if one did.
  bool next_signal(signalfd_siginfo& info);
  /// Reads and writes nothing.
  int nothing() const { return nothing_.get(); }
  pid_t id() const { return id_; }

  /// Starts a program as one of the group, with the limits that this process had.
  pid_t start(Start start) const;
  void signal_all(int signal) const;
  /// Calls `on_ended(pid, status)` for everyone who has ended, but the keeper. True: a stranger killed the
  /// keeper, and with it everybody.
  bool reap(const std::function<void(pid_t, int)>& on_ended);
  /// The end of the whole group, what its members left behind included. Signals stay as they are.
  void sweep();

 private:
  Descriptor signals_, nothing_;
  rlim_t files_ = 0;           // the limit that the workers get back
  pid_t id_ = 0;               // the keeper
  bool keeper_ended_ = false;  // id_ is then good for waiting only
};

}  // namespace troupe::tools
