// From the workers' pipes to our own standard output and error, without ever waiting for a slow reader.
#pragma once
#include <optional>
#include <string>

#include "tools/launch/lines.h"
#include "tools/launch/process.h"

namespace troupe::tools {

/// One of our own outputs. Text waits here until the descriptor takes it.
class OutputSink {
 public:
  static constexpr size_t kFull = 1 << 20;  ///< above this, nothing more is read from the workers

  explicit OutputSink(int fd) : fd_(fd) {}
  int fd() const { return fd_; }
  void add(std::string_view text) {
    if (!failure_) pending_ += text;
  }
  /// Why the rest of the text is dropped, as errno; 0: it is not.
  int failure() const { return failure_; }
  /// Drops all text from now on.
  void drop(int why) {
    failure_ = why;
    pending_.clear();
  }
  std::string& pending() { return pending_; }
  bool full() const { return pending_.size() > kFull; }
  /// Writes one piece, small enough for a descriptor that poll() called writable not to block.
  void write_some();
  /// Writes everything; blocks.
  void flush() {
    while (!pending_.empty()) write_some();
  }

 private:
  int fd_;
  int failure_ = 0;
  std::string pending_;
};

/// Standard output or error of one worker, read from a pipe, or told by an agent.
class OutputStream {
 public:
  /// `sink` null: not shown. `prefix` empty: bytes pass as they come. `log`: descriptor of the worker's log
  /// file, or -1; `errors` hears of it when that cannot be written.
  OutputStream(Descriptor pipe, OutputSink* sink, const std::string& prefix, int log, OutputSink& errors);

  /// -1 once the worker's side is closed.
  int fd() const { return pipe_.get(); }
  bool wanted() const { return bool(pipe_) && !(sink_ && sink_->full()); }
  /// Reads what is there, at most `limit` bytes.
  void read_some(size_t limit);
  void take(std::string_view text);
  /// Reads what is left and shows a last line without an end.
  void finish();
  /// Whether some of it is not in the log file.
  bool log_lost() const { return log_lost_; }
  const std::deque<std::string>& last() const { return raw_ ? log_lines_.last() : lines_.last(); }

 private:
  void show(std::string_view text) {
    if (sink_) sink_->add(text);
  }
  void log(std::string_view bytes);
  Descriptor pipe_;
  OutputSink *sink_, *errors_;
  bool raw_, log_lost_ = false;
  int log_;
  Lines lines_, log_lines_{""};
};

}  // namespace troupe::tools
