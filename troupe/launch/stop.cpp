#include "troupe/launch/stop.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <mutex>

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/base/standard_output.h"
#include "net/rendezvous.h"
#include "troupe/launch/stop_request.h"

namespace troupe {
namespace {

internal::Mutex stop_mutex;  // of who begins and ends to listen
std::atomic<int> listeners{0}, unsaved_loops{0};
std::atomic<const char*> unsaved_folder{nullptr};
std::atomic<bool> unsaved_said{false};
bool signals_are_taken = false;  // by launch()
bool handled_int = false, handled_term = false;
std::atomic<int> asked{0};
std::atomic<int64_t> asked_at{0};
thread_local bool caught = false;

int64_t nanoseconds_now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

// False: it was before.
bool note(int signal) {
  if (asked) return false;
  asked_at = nanoseconds_now();  // before it is asked for: a second one looks at it
  int none = 0;
  return asked.compare_exchange_strong(none, signal);
}

// In a signal handler, of a program without launch().
void on_signal(int signal) {
  const int error = errno;
  if (listeners == 0) {
    internal::say_unsaved(signal, "");
    ::signal(signal, SIG_DFL);
    raise(signal);
  } else if (note(signal)) {
    constexpr char text[] = "asked to end: that is what comes next (again ends it now)\n";
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) {  // nobody reads it
    }
  } else if (nanoseconds_now() - asked_at > internal::kSameRequest.count()) {
    ::signal(signal, SIG_DFL);
    raise(signal);
  }
  errno = error;
}

// With the mutex. Who has handlers of its own, or ignores a signal, keeps to that.
void handle(int signal, bool& handled, bool wanted) {
  struct sigaction there {
  }, ours{};
  ours.sa_handler = on_signal;
  ours.sa_flags = SA_RESTART;
  if (sigaction(signal, nullptr, &there) != 0) return;
  if (wanted && there.sa_handler == SIG_DFL)
    handled = sigaction(signal, &ours, nullptr) == 0;
  else if (!wanted && handled && there.sa_handler == on_signal)
    handled = ::signal(signal, SIG_DFL) == SIG_ERR;
}
void handle_both() {
  const bool wanted = listeners + unsaved_loops > 0 && !signals_are_taken;
  handle(SIGINT, handled_int, wanted);
  handle(SIGTERM, handled_term, wanted);
}

}  // namespace

StopSignal::StopSignal() {
  std::lock_guard lock(stop_mutex);
  ++listeners;
  handle_both();
}
StopSignal::~StopSignal() {
  std::lock_guard lock(stop_mutex);
  --listeners;
  handle_both();
}
bool StopSignal::received() const { return asked != 0; }

namespace internal {

UnsavedLoop::UnsavedLoop(const char* folder) {
  std::lock_guard lock(stop_mutex);
  unsaved_folder = folder;
  unsaved_said = false;
  ++unsaved_loops;
  handle_both();
}
UnsavedLoop::~UnsavedLoop() {
  std::lock_guard lock(stop_mutex);
  --unsaved_loops;
  handle_both();
}

void say_unsaved(int signal, const char* who) noexcept {
  if (unsaved_loops == 0 || unsaved_said.exchange(true)) return;
  const int error = errno;
  char text[256];
  size_t size = 0;
  for (const char* part :
       {who, "[job] ", signal == SIGINT ? "Ctrl-C" : "SIGTERM",
        " ends the loop, and nothing of it is saved: the job has no folder of checkpoints (",
        unsaved_folder.load(), ")\n"})
    for (; *part && size < sizeof text; ++part) text[size++] = *part;
  if (write(STDERR_FILENO, text, size) < 0) {  // nobody reads it
  }
  errno = error;
}

StopCatcher::StopCatcher(bool own_signals) : own_signals_(own_signals), before_(caught) {
  std::lock_guard lock(stop_mutex);
  asked = 0;
  signals_are_taken |= own_signals_;
  caught = true;
}
StopCatcher::~StopCatcher() {
  std::lock_guard lock(stop_mutex);
  if (own_signals_) signals_are_taken = false;
  caught = before_;
}

bool ask_to_stop(int signal) {
  std::lock_guard lock(stop_mutex);
  if (asked) return true;
  if (listeners == 0) return false;
  note(signal);
  net::say_stopping();
  return true;
}
bool ask_to_stop(int signal, const std::string& who) {
  const bool again = asked;
  if (!ask_to_stop(signal)) return false;
  if (!again)
    std::fprintf(
        stderr, "w0: [launch] %s at %s: the program comes to its end by itself (once more ends it at once)\n",
        signal == SIGINT ? "Ctrl-C" : "SIGTERM", who.c_str());
  return true;
}
bool take_signal(int signal) {
  if (listeners == 0) return false;
  on_signal(signal);
  return true;
}
int stop_asked() { return asked; }

void end_as_asked() {
  if (caught) throw StopEnd();
  try {
    flush_output();
  } catch (const Error&) {  // the end of the program says so, if it has one
  }
  const int signal = asked;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  ::signal(signal, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  raise(signal);
  _exit(128 + signal);
}

}  // namespace internal
}  // namespace troupe
