// A job of real processes, and the commands that look at it.
#pragma once
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/process/launcher.h"

namespace troupe::testing {

/// The output of `troupe VERB ARGUMENTS`, which has to end well.
inline std::string troupe_says(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), kTroupeCommand);
  Process command(arguments);
  const int code = command.exit_code();
  INFO(command.output << command.errors);
  REQUIRE(code == 0);
  return command.output;
}

/// The planted program, as three processes, with its cause in place.
class WatchedJob {
 public:
  explicit WatchedJob(const std::string& what, std::vector<std::string> flags = {})
      : run(arguments(std::move(flags), what)) {
    run.await("planted\n");
    job = run.line("job ");
  }
  ~WatchedJob() { run.signal(SIGKILL); }

  nlohmann::json waits() const {
    return nlohmann::json::parse(troupe_says({"waits", "--json", job})).at("waits");
  }
  /// The first line of its waits, once it says `cause`, with that many calls: what is planted takes a moment
  /// to show.
  std::string first_line(const std::string& cause, int64_t waiting = 0) const {
    for (;;) {
      const auto all = waits();
      if (all.empty()) continue;
      const std::string line = all[0].at("line");
      UNSCOPED_INFO(line);
      if (line.find(cause) != std::string::npos && (!waiting || all[0].at("waiting") == waiting)) return line;
    }
  }

  Launcher run;
  std::string job;

 private:
  static std::vector<std::string> arguments(std::vector<std::string> flags, const std::string& what) {
    flags.insert(flags.end(), {"-n", "3", program("planted"), what});
    return flags;
  }
};

}  // namespace troupe::testing
