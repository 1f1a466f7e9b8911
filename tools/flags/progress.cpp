// Draws the bar; what is drawn is made by pure functions.
#include "tools/flags/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "core/base/error.h"

namespace troupe::tools {
namespace {

constexpr int kLeastBar = 8, kMostBar = 30, kUsualWidth = 80;

// Columns of a text: UTF-8 continuation bytes take none.
int columns(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// The first `width` columns; never half a character.
std::string cut(const std::string& text, int width) {
  size_t at = 0;
  for (int used = 0; at < text.size(); ++at)
    if ((text[at] & 0xC0) != 0x80 && ++used > width) break;
  return text.substr(0, at);
}

std::string rate(const ProgressState& s) {
  if (s.samples <= 0 || s.seconds <= 0) return {};
  const double r = static_cast<double>(s.samples) / s.seconds;
  if (r >= 1e6) return fmt::format("{:.1f}M samples/s", r / 1e6);
  if (r >= 1e4) return fmt::format("{:.1f}k samples/s", r / 1e3);
  return fmt::format("{:.{}f} samples/s", r, r < 10 ? 1 : 0);
}

std::string value(double v) {
  if (v == 0 || (std::isfinite(v) && std::abs(v) >= 1e-3 && std::abs(v) < 1e5))
    return fmt::format("{:.4f}", v);
  return fmt::format("{:.3e}", v);
}

std::string time_text(const ProgressState& s) {
  if (s.finished) return "in " + render_time(s.seconds);
  if (s.total <= 0) return render_time(s.seconds);
  if (s.step <= 0) return render_time(NAN) + " left";
  const double left =
      s.seconds / static_cast<double>(s.step) * static_cast<double>(std::max<int64_t>(0, s.total - s.step));
  return render_time(left) + " left";
}

// "  3/100", as wide at the first step as at the last.
std::string steps(const ProgressState& s) {
  if (s.total <= 0) return fmt::format("step {}", s.step);
  const std::string total = std::to_string(s.total);
  return fmt::format("{:>{}}/{}", s.step, total.size(), total);
}

double share(const ProgressState& s) {
  return s.total <= 0 ? 0 : std::clamp(static_cast<double>(s.step) / static_cast<double>(s.total), 0.0, 1.0);
}

// Full cells, one cell in eighths, then a thin rule.
std::string bar(double share, int cells, bool color) {
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(share * cells * 8), full = eighths / 8, part = eighths % 8;
  std::string done, rest;
  for (int i = 0; i < full; ++i) done += "█";
  done += kEighths[part];
  for (int i = full + (part > 0); i < cells; ++i) rest += "·";
  if (!color) return done + rest;
  return (share >= 1 ? "\x1b[32m" : "\x1b[36m") + done + "\x1b[0m\x1b[2m" + rest + "\x1b[0m";
}

int terminal_width(int fd) {
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return kUsualWidth;
}

// NO_COLOR counts if it is there and not empty (no-color.org).
bool set_and_filled(const char* name) {
  const char* v = std::getenv(name);
  return v && *v;
}

}  // namespace

std::string render_time(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e8) return "?";
  const auto s = static_cast<int64_t>(std::llround(seconds));
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

std::string render_line(const ProgressState& s) {
  std::string out = s.label.empty() ? steps(s) : s.label + "  " + steps(s);
  if (s.total > 0) out += fmt::format(" ({:.0f}%)", 100 * share(s));
  for (const auto& [name, v] : s.metrics) out += fmt::format("  {} {}", name, value(v));
  if (const std::string r = rate(s); !r.empty()) out += "  " + r;
  return out + "  " + time_text(s);
}

std::string render_bar(const ProgressState& s, int width, bool color) {
  const int room = std::max(width, 0);
  std::string head = s.label.empty() ? steps(s) : s.label + "  " + steps(s);
  if (columns(head) >= room) return cut(head, room);
  std::vector<std::string> metrics;
  for (const auto& [name, v] : s.metrics) metrics.push_back(fmt::format("{} {}", name, value(v)));
  std::vector<std::string> extra;  // dropped from the back
  if (std::string t = time_text(s); !t.empty()) extra.push_back(t);
  if (std::string r = rate(s); !r.empty()) extra.push_back(r);

  const int least = s.total > 0 ? kLeastBar + 2 : 0;
  auto used = [&] {
    int n = columns(head);
    for (const auto* list : {&metrics, &extra})
      for (const std::string& text : *list) n += 2 + columns(text);
    return n;
  };
  while (!extra.empty() && used() + least > room) extra.pop_back();
  while (metrics.size() > 1 && used() + least > room) metrics.pop_back();
  const bool draw = s.total > 0 && used() + least <= room;
  if (!metrics.empty() && used() > room) metrics.clear();

  std::string out = head;
  if (draw) out += "  " + bar(share(s), std::min(kMostBar, room - used() - 2), color);
  for (const std::string& text : metrics) out += "  " + text;
  std::reverse(extra.begin(), extra.end());  // rate, then time
  for (const std::string& text : extra) out += color ? "  \x1b[2m" + text + "\x1b[0m" : "  " + text;
  return out;
}

Progress::Progress(ProgressOptions options) : options_(std::move(options)) {
  if (options_.total < 0)
    throw_invalid(fmt::format("[progress] total {}, expected 0 or more", options_.total));
  if (options_.fd == STDOUT_FILENO)
    throw_invalid("[progress] standard output is for results; draw on standard error (2)");
  const char* term = std::getenv("TERM");
  terminal_ = isatty(options_.fd) && !(term && std::string_view(term) == "dumb");
  color_ = terminal_ && !set_and_filled("NO_COLOR");
  state_.label = options_.label;
  state_.total = options_.total;
  start_ = drawn_ = options_.clock->now();
  if (terminal_) draw();
}

Progress::~Progress() {
  if (line_open_) write("\n");
}

double Progress::elapsed() const {
  return std::chrono::duration<double>(options_.clock->now() - start_).count();
}

void Progress::update(int64_t step, const Metrics& metrics, int64_t samples) {
  if (finished_) return;
  state_.step = step;
  state_.samples += samples;
  if (!metrics.empty()) state_.metrics = metrics;
  if (options_.clock->now() - drawn_ >= (terminal_ ? options_.redraw : options_.line)) draw();
}

void Progress::print(std::string_view line) {
  if (line_open_) write("\r\x1b[K");
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fputc('\n', stdout);
  if (!line_open_) return;
  std::fflush(stdout);  // it must be there before the bar is
  draw();
}

void Progress::finish() {
  if (finished_) return;
  finished_ = state_.finished = true;
  draw();
  if (line_open_) write("\n");
  line_open_ = false;
}

void Progress::draw() {
  drawn_ = options_.clock->now();
  state_.seconds = elapsed();
  if (!terminal_) return write(render_line(state_) + "\n");
  // One column is left free: a full line would wrap on some terminals.
  write("\r" + render_bar(state_, terminal_width(options_.fd) - 1, color_) + "\x1b[K");
  line_open_ = true;
}

void Progress::write(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t n = ::write(options_.fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace troupe::tools
