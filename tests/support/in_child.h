// Code that changes its process for good, or must not find it changed: run in a child.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <exception>
#include <string>
#include <utility>

namespace troupe::testing {

/// Runs f in a child that fork() makes; f gives what is wrong, or nothing, and so does this. A child that
/// dies is wrong, too. f begins when `meanwhile`, in the parent and after fork(), is over.
template <class F, class G>
std::string in_child(F&& f, G&& meanwhile) {
  std::array<int, 2> ends{}, begins{};
  if (::pipe(ends.data()) != 0 || ::pipe(begins.data()) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child < 0) return "no child";
  if (child == 0) {
    ::close(ends[0]);
    ::close(begins[1]);
    char end = 0;
    [[maybe_unused]] const ssize_t none = ::read(begins[0], &end, 1);
    for (const int signal : {SIGSEGV, SIGBUS, SIGABRT}) ::signal(signal, SIG_DFL);  // Catch reports them
    std::string wrong;
    try {
      wrong = f();
    } catch (const std::exception& e) {
      wrong = std::string("threw ") + e.what();
    }
    [[maybe_unused]] const ssize_t n = ::write(ends[1], wrong.data(), wrong.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  ::close(begins[0]);
  meanwhile();
  ::close(begins[1]);
  std::string wrong;
  std::array<char, 1000> part{};
  for (ssize_t n; (n = ::read(ends[0], part.data(), part.size())) > 0;)
    wrong.append(part.data(), static_cast<size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) wrong += " died of signal " + std::to_string(WTERMSIG(status));
  return wrong;
}
template <class F>
std::string in_child(F&& f) {
  return in_child(std::forward<F>(f), [] {});
}

}  // namespace troupe::testing

/// In the function of in_child(): gives the condition back if it is not so.
#define TROUPE_WRONG_UNLESS(condition)                \
  do {                                                \
    if (!(condition)) return std::string(#condition); \
  } while (false)
