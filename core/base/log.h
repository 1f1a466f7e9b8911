// Log lines on standard error: "troupe info: text". Level from TROUPE_LOG (debug, info, warning, error, off;
// default warning).
#pragma once
#include <string>

namespace troupe::internal::log {

enum class Level { debug, info, warning, error, off };

/// Thread-safe; each line is written whole. Never called from signal handlers.
void debug(const std::string& text);
void info(const std::string& text);
void warning(const std::string& text);
void error(const std::string& text);

void set_level(Level level);
/// A capture for tests: receives every line instead of standard error until reset with nullptr.
void set_sink(void (*sink)(Level, const std::string&));

}  // namespace troupe::internal::log
