// What is said where no memory is left, and the end of a program that cannot do without.
#pragma once
#include <new>
#include <string>
#include <utility>

namespace troupe {

/// Says in words how much was asked for, and of what.
class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

/// Ends the process with code 1 and one line on standard error. For threads that others wait for: a message
/// that is lost there would be waited for until a timeout.
[[noreturn]] void end_without_memory();

/// Loads now what the system's library loads when it is first needed, and ends the program where it cannot
/// (libgcc_s, for ending threads and for exceptions).
void load_unwinder();

}  // namespace troupe
