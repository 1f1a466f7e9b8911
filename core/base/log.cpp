#include "core/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <string_view>
#include <unordered_set>

#include "core/base/mutex.h"
#include "core/base/repeats.h"

namespace troupe::internal::log {
namespace {

std::atomic<void (*)(Level, const std::string&)> capture{nullptr};

spdlog::level::level_enum native(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warning:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
    case Level::off:
      break;
  }
  return spdlog::level::off;
}

spdlog::logger& logger() {
  static const auto instance = [] {
    auto made = spdlog::stderr_color_mt("troupe");
    made->set_pattern("troupe %^%l%$: %v");
    made->set_level(spdlog::level::warn);
    const char* asked = std::getenv("TROUPE_LOG");
    if (!asked || !*asked) return made;
    const auto level = spdlog::level::from_str(asked);
    if (level != spdlog::level::off || std::string_view(asked) == "off")
      made->set_level(level);
    else
      made->warn("[log] TROUPE_LOG is \"{}\", expected debug, info, warning, error or off", asked);
    return made;
  }();
  return *instance;
}

void write(Level level, const std::string& text);

// The lines of KeptLines.
struct Kept {
  internal::Mutex mutex;
  std::deque<KeptLine> lines TROUPE_GUARDED_BY(mutex);
  size_t bytes TROUPE_GUARDED_BY(mutex) = 0;
  uint64_t next TROUPE_GUARDED_BY(mutex) = 0;
  void add(Level level, const std::string& text) TROUPE_EXCLUDES(mutex) {
    const auto name = spdlog::level::to_string_view(native(level));
    const std::chrono::duration<double> time = std::chrono::system_clock::now().time_since_epoch();
    Lock lock(mutex);
    lines.push_back(
        {time.count(), std::string(name.data(), name.size()) + ": " + text.substr(0, kKeptBytes / 2)});
    bytes += lines.back().text.size();
    ++next;
    for (; bytes > kKeptBytes; lines.pop_front()) bytes -= lines.front().text.size();
  }
};

// Those of this process; its end writes the counts that nobody has seen.
struct Counted;
Counted& counted();
struct Counted {
  internal::Mutex mutex;
  std::map<Level, Repeats> repeats;
  std::unordered_set<std::string> once;
  Kept kept;
  Counted() {
    (void)logger();  // which ends after this
    std::atexit([] { counted().write_rest(); });
  }
  void write_rest() {
    for (auto& [level, lines] : repeats)
      for (const std::string& line : lines.rest()) write(level, line);
  }
};

Counted& counted() {
  static Counted& all = *new Counted;  // there may be something to say at the very end
  return all;
}

void write(Level level, const std::string& text) {
  if (logger().should_log(native(level))) counted().kept.add(level, text);
  if (auto* sink = capture.load()) return sink(level, text);
  logger().log(native(level), text);
}

void count(Level level, const std::string& text) {
  Counted& all = counted();
  std::unique_lock lock(all.mutex);
  const std::string line = all.repeats[level].line(text, Clock::system().now());
  lock.unlock();
  if (!line.empty()) write(level, line);
}

}  // namespace

void debug(const std::string& text) { write(Level::debug, text); }
void info(const std::string& text) { write(Level::info, text); }
void warning(const std::string& text) { count(Level::warning, text); }
void error(const std::string& text) { count(Level::error, text); }
void warning_once(const std::string& text) {
  {
    Counted& all = counted();
    std::lock_guard lock(all.mutex);
    if (all.once.size() < 1000 && !all.once.insert(text).second) return;
  }
  write(Level::warning, text);
}
KeptLines kept_lines(uint64_t from) {
  Kept& all = counted().kept;
  Lock lock(all.mutex);
  KeptLines out{all.next, {}};
  const uint64_t first = all.next - all.lines.size();
  const uint64_t skip = from > first ? std::min<uint64_t>(from - first, all.lines.size()) : 0;
  out.lines.assign(all.lines.begin() + static_cast<std::ptrdiff_t>(skip), all.lines.end());
  return out;
}

Level set_level(Level level) {
  const auto before = logger().level();
  logger().set_level(native(level));
  for (const Level l : {Level::debug, Level::info, Level::warning, Level::error})
    if (native(l) >= before) return l;
  return Level::off;
}
void set_sink(void (*sink)(Level, const std::string&)) {
  Counted& all = counted();
  std::lock_guard lock(all.mutex);
  if (!capture) all.write_rest();
  all.repeats.clear();
  all.once.clear();
  capture = sink;
}

}  // namespace troupe::internal::log
