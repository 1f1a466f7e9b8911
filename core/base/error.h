// The one error type: a kind that tells the caller what to do next, a text, and the calls that it crossed.
#pragma once
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// What the caller does next. The numbers are those of `ErrorKind` in
/// net/wire/wire.capnp. docs/reference/errors.md says more.
enum class ErrorKind : uint8_t {
  invalid = 0,        ///< fix the call: bad argument, shape, name, file
  failed = 1,         ///< user code threw
  overloaded = 2,     ///< try again later: a queue is full
  deadline = 3,       ///< took longer than the caller allowed
  disconnected = 4,   ///< a worker is gone: restart it, or go on without
  cancelled = 5,      ///< nobody wants the result any more
  unimplemented = 6,  ///< use another way
};
inline constexpr int kErrorKindCount = 7;
std::string_view name(ErrorKind kind);

/// Thrown by local calls, delivered by futures, sent between workers.
///
/// The text says what was got and what was expected, and starts with the part that speaks:
/// "[matmul] inner dimensions differ: [3, 4] x [5, 6]". `trail` lists the calls that the error crossed,
/// innermost first ("Layer::forward on w1"); `what()` is text and trail together.
///
/// Errors travel, so they are short: of a text above 16 KiB head and tail are kept, and of a trail of more
/// than 64 calls the innermost and the outermost. Control characters other than line ends and tabs are
/// written out ("\r"), so that nothing that came from a file or another program moves a terminal's cursor.
class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string message);
  /// One that arrived from elsewhere, with what it had gathered.
  Error(ErrorKind kind, std::string message, std::vector<std::string> trail, std::string worker);
  // Compiled once: each is long, and every call and future has several.
  Error(const Error&);
  Error(Error&&) noexcept;
  Error& operator=(const Error&);
  Error& operator=(Error&&) noexcept;
  ~Error() override;

  ErrorKind kind() const { return kind_; }
  const std::string& message() const& { return message_; }
  std::string message() && { return std::move(message_); }
  const std::vector<std::string>& trail() const& { return trail_; }
  std::vector<std::string> trail() && { return std::move(trail_); }
  /// Name of the worker that was lost; empty unless kind() is disconnected.
  const std::string& worker() const& { return worker_; }
  std::string worker() && { return std::move(worker_); }
  const char* what() const noexcept override { return what_.c_str(); }

  Error with_worker(std::string worker) &&;
  /// Adds a call that the error crossed.
  Error crossing(std::string call) &&;

 private:
  void render();
  ErrorKind kind_;
  std::string message_, worker_, what_;
  std::vector<std::string> trail_;
};

/// The exception in flight as an Error: an Error itself, or `failed` with the exception's type name and text.
Error current_error();

/// throw Error(kind, message); a message with values is made with fmt::format(), in .cpp files.
[[noreturn]] void throw_error(ErrorKind kind, std::string message);
[[noreturn]] inline void throw_invalid(std::string message) {
  throw_error(ErrorKind::invalid, std::move(message));
}

/// The entry of `known` nearest to `got` by edit distance, for "did you mean"; empty if none is near.
std::string nearest(std::string_view got, const std::vector<std::string>& known);

}  // namespace troupe
