// The end that Ctrl-C or SIGTERM asks for, of a program that comes to it by itself.
#pragma once
#include <chrono>
#include <exception>

namespace troupe {

/// While one lives, the first Ctrl-C or SIGTERM asks this program for its end in place of interrupting it:
/// calls go on, and the program ends by itself, soon. The loop of a Job with checkpoints has one; a loop of
/// the program's own may have one, too:
///
///   for (StopSignal stop; !stop.received();) { ... }
///
/// A second signal, a second later or more, ends the process at once. Under launch(), a signal to one of the
/// other workers counts as well. The exit code is 130 or 143 all the same. Thread-safe.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  /// Whether one has come, also before this was made.
  bool received() const;
};

namespace internal {

/// Launchers and batch systems tell every process that it is to end, each in its way: what comes so soon
/// after the first signal is the same request.
inline constexpr std::chrono::nanoseconds kSameRequest = std::chrono::seconds(1);

/// Thrown out of a job's loop once its last checkpoint is made.
struct StopEnd : std::exception {
  const char* what() const noexcept override { return "the job ends, as it was asked to"; }
};

/// While one lives on this thread, StopEnd is caught; it begins with no signal received.
class StopCatcher {
 public:
  /// `own_signals`: somebody else takes the signals, and tells ask_to_stop().
  explicit StopCatcher(bool own_signals);
  ~StopCatcher();
  StopCatcher(const StopCatcher&) = delete;
  StopCatcher& operator=(const StopCatcher&) = delete;

 private:
  const bool own_signals_, before_;
};

/// While one lives, a loop of a job goes on that nobody saves: a signal that ends the program says so.
class UnsavedLoop {
 public:
  /// `folder`: what gives the job one, "Checkpoints::dir"; a literal.
  explicit UnsavedLoop(const char* folder);
  ~UnsavedLoop();
  UnsavedLoop(const UnsavedLoop&) = delete;
  UnsavedLoop& operator=(const UnsavedLoop&) = delete;
};
/// Says so, if there is such a loop, once, behind `who`. May be called in a signal handler.
void say_unsaved(int signal, const char* who) noexcept;

/// A signal has come. False: nothing here ends by itself.
bool ask_to_stop(int signal);
/// That signal; 0: none.
int stop_asked();
/// The end of the program as it is asked for: StopEnd, or, if nobody catches it, by the signal.
[[noreturn]] void end_as_asked();

}  // namespace internal
}  // namespace troupe
