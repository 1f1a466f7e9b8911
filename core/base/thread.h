// Threads that may not be had: a limit of memory or of processes is an error in words.
#pragma once
#include <system_error>
#include <thread>
#include <utility>

namespace troupe {

/// Cores that this process may use, at least 1: those that it may run on, or the quota of its container
/// (rounded up) if that is less.
int usable_cores();

/// Throws `failed`: "[net] cannot start a thread: ...; ...", with the limits that are usual reasons.
[[noreturn]] void throw_no_thread(const char* part, const std::system_error& why);

/// std::thread, or `failed` in the name of `part` ("net") if the system has no more. f has not begun then.
template <class F>
std::thread start_thread(const char* part, F&& f) {
  try {
    return std::thread(std::forward<F>(f));
  } catch (const std::system_error& e) {
    throw_no_thread(part, e);
  }
}

/// Before another library starts `count` threads that it cannot do without: throws as start_thread if the
/// system would not give as many, by starting and ending them.
void rehearse_threads(const char* part, int count);

}  // namespace troupe
