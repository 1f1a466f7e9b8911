// Log lines on standard error: "troupe info: text". Level from TROUPE_LOG (debug, info, warning, error, off;
// default warning). Warnings and errors that are the same are counted, not repeated.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::internal::log {

enum class Level { debug, info, warning, error, off };

/// Thread-safe; each line is written whole. Never called from signal handlers.
void debug(const std::string& text);
void info(const std::string& text);
void warning(const std::string& text);
void error(const std::string& text);
/// A warning, if this process has not given it yet.
void warning_once(const std::string& text);

/// The process keeps the last lines that it wrote, for watchers: at most kKeptBytes.
struct KeptLine {
  double time = 0;   ///< seconds since 1970
  std::string text;  ///< "warning: [call] ..."
};
struct KeptLines {
  uint64_t next = 0;  ///< number of the line that will be written next
  std::vector<KeptLine> lines;
};
inline constexpr size_t kKeptBytes = 1 << 20;
/// The lines from number `from` on.
KeptLines kept_lines(uint64_t from = 0);

/// From that level on; gives the one before.
Level set_level(Level level);
/// A capture for tests: receives every line that would be written instead of standard error until reset with
/// nullptr. What came before it is forgotten.
void set_sink(void (*sink)(Level, const std::string&));

}  // namespace troupe::internal::log
