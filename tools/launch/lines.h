// Bytes of one worker's output into whole, prefixed lines.
#pragma once
#include <deque>
#include <string>
#include <string_view>

namespace troupe::tools {

/// Cuts a stream into lines. A line longer than kLongest is cut there, so that a stream without line ends
/// needs bounded memory.
class Lines {
 public:
  static constexpr size_t kLongest = 64 << 10;
  static constexpr size_t kRemembered = 20;

  explicit Lines(std::string prefix) : prefix_(std::move(prefix)) {}

  /// Appends to `out` the lines that `bytes` complete.
  void feed(std::string_view bytes, std::string& out);
  /// The stream is over: appends what is left as a line.
  void finish(std::string& out);
  /// The newest lines, oldest first, without prefix or line end.
  const std::deque<std::string>& last() const { return last_; }

 private:
  void emit(std::string& out);
  std::string prefix_, partial_;
  std::deque<std::string> last_;
};

/// "[w1] ", in a colour of its own if `colour`.
std::string prefix_of(int64_t rank, bool colour);

}  // namespace troupe::tools
