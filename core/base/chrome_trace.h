// Timelines in Chrome's trace format, for chrome://tracing and ui.perfetto.dev: boxes in rows, and arrows.
#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace troupe {

/// Puts the JSON together. Times in microseconds, from any start; written to the nanosecond. Rows belong to
/// processes; what overlaps in a row is drawn as nested.
class ChromeTrace {
 public:
  using Field = std::variant<int64_t, double, std::string>;
  using Fields = std::vector<std::pair<std::string, Field>>;
  struct Place {
    int64_t process = 0, row = 0;
  };

  void name_process(int64_t process, const std::string& name);
  void name_row(Place at, const std::string& name);
  /// `about`: what a click on it shows.
  void box(const std::string& name, const std::string& category, Place at, double begin, double duration,
           const Fields& about = {});
  /// The two ends of an arrow have the same id and name; each lies in the box that is there at that time. One
  /// without its other end is not drawn.
  void arrow_begin(const std::string& id, const std::string& name, Place at, double time);
  void arrow_end(const std::string& id, const std::string& name, Place at, double time,
                 const Fields& about = {});

  /// The whole file. `about`: of the timeline as a whole.
  std::string str(const Fields& about = {}) const;

 private:
  struct Arrow {
    int64_t begins = 0, ends = 0;
    std::string events;
  };
  static void add(std::string& to, const char* phase, const std::string& name, Place at, const Fields& more,
                  const Fields& about);
  size_t number_of(const std::string& id);
  std::string events_;
  std::vector<Arrow> arrows_;                        // by number, from 1
  std::unordered_map<std::string, size_t> numbers_;  // by id
};

}  // namespace troupe
