// Lets the driver read from the terminal although the workers have a process group of their own.
#pragma once
#include <sys/types.h>

namespace troupe::tools {

/// Makes the workers' group the terminal's foreground group, as a shell does for a job, and takes it back at
/// the end. Does nothing unless standard input and output are the terminal and we are in its foreground:
/// `troupe run ... | less` must leave the keyboard to less.
class Terminal {
 public:
  explicit Terminal(pid_t group);
  ~Terminal() { take(); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  bool used() const { return used_; }
  /// To the workers, if we are in the foreground.
  void give();
  /// Back to us, if the workers have it.
  void take();

 private:
  pid_t group_;
  bool used_;
};

}  // namespace troupe::tools
