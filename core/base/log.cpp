#include "core/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdlib>
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

void write(Level level, const std::string& text) {
  if (auto* sink = capture.load()) return sink(level, text);
  logger().log(native(level), text);
}

// Those of this process; its end writes the counts that nobody has seen.
struct Counted;
Counted& counted();
struct Counted {
  internal::Mutex mutex;
  std::map<Level, Repeats> repeats;
  std::unordered_set<std::string> once;
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
void set_level(Level level) { logger().set_level(native(level)); }
void set_sink(void (*sink)(Level, const std::string&)) {
  Counted& all = counted();
  std::lock_guard lock(all.mutex);
  if (!capture) all.write_rest();
  all.repeats.clear();
  all.once.clear();
  capture = sink;
}

}  // namespace troupe::internal::log
