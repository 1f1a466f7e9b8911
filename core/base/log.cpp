#include "core/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdlib>
#include <string_view>

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

}  // namespace

void debug(const std::string& text) { write(Level::debug, text); }
void info(const std::string& text) { write(Level::info, text); }
void warning(const std::string& text) { write(Level::warning, text); }
void error(const std::string& text) { write(Level::error, text); }
void set_level(Level level) { logger().set_level(native(level)); }
void set_sink(void (*sink)(Level, const std::string&)) { capture = sink; }

}  // namespace troupe::internal::log
