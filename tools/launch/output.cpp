// Reads are non-blocking, writes are small: the launcher always comes back to look at signals.
#include "tools/launch/output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

namespace troupe::tools {

void OutputSink::write_some() {
  const ssize_t done = write(fd_, pending_.data(), std::min<size_t>(pending_.size(), PIPE_BUF));
  if (done >= 0) {
    pending_.erase(0, size_t(done));
  } else if (errno != EINTR && errno != EAGAIN) {
    drop(errno);
  }
}

OutputStream::OutputStream(Descriptor pipe, OutputSink* sink, const std::string& prefix, int log,
                           OutputSink& errors)
    : pipe_(std::move(pipe)),
      sink_(sink),
      errors_(&errors),
      raw_(prefix.empty()),
      log_(log),
      lines_(prefix) {}

void OutputStream::read_some(size_t limit) {
  char bytes[64 << 10];
  while (pipe_ && limit > 0) {
    const ssize_t got = read(pipe_.get(), bytes, std::min(limit, sizeof bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return pipe_.reset();
    take({bytes, size_t(got)});
    limit -= size_t(got);
  }
}

void OutputStream::take(std::string_view text) {
  if (raw_) {
    show(text);
  } else {
    std::string lines;
    lines_.feed(text, lines);
    show(lines);
  }
  if (log_ >= 0 || raw_) {
    std::string lines;
    log_lines_.feed(text, lines);
    log(lines);
  }
}

void OutputStream::finish() {
  read_some(size_t{2} << 20);  // more than a pipe holds
  pipe_.reset();
  std::string lines;
  lines_.finish(lines);
  show(lines);
  lines.clear();
  log_lines_.finish(lines);
  log(lines);
}

void OutputStream::log(std::string_view bytes) {
  while (log_ >= 0 && !bytes.empty()) {
    const ssize_t done = write(log_, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) {
      errors_->add(std::string("troupe run: a log file is not written any more: ") + std::strerror(errno) +
                   "\n");
      log_ = -1;
      log_lost_ = true;
      return;
    }
    bytes.remove_prefix(size_t(done));
  }
}

}  // namespace troupe::tools
