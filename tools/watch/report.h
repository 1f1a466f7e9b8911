// What a job's workers said of themselves, as rows.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe::tools {

struct ActorRow {
  std::string actor, type, doing;
  double seconds = 0, busy = 0;
  int64_t queued = 0, calls = 0;
};

struct MethodRow {
  std::string method;
  int64_t calls = 0;
  double busy = 0, queued = 0;
};

struct WorkerRow {
  std::string worker, silent;  ///< why it said nothing; empty: it has answered
  std::string host, program;
  int64_t pid = 0, steps = 0, calls = 0, queued = 0, memory = 0, device_memory = 0, sent = 0, threads = 0,
          more_actors = 0;
  double clock = 0, steps_per_second = 0, step_seconds = 0, step_age = -1, cpu = 0, starved = 0, busy = 0,
         waited = 0;
  std::optional<double> loss;
  std::vector<ActorRow> actors;
  std::vector<MethodRow> methods;
  std::map<std::string, int64_t> metrics;
};

struct JobReport {
  std::string job, program, asked;
  int64_t restarts = 0;
  std::vector<WorkerRow> workers;
  /// Reads an answer to "report"; `failed` if it is none.
  static JobReport parse(const std::string& json);
};

/// "1.2 GB", "12.3 s".
std::string bytes_text(double bytes);
std::string seconds_text(double seconds);

/// What the feeds of all workers gave between two looks: "1200 rows/s of feeds, waited for 3% of the time";
/// of the one that waited most. Empty if there are none.
std::string feeds_text(const JobReport& now, const JobReport* before);

/// The table of `troupe ps`. Shares are of the time between the two looks; without an earlier one, of all.
std::string ps_text(const JobReport& now, const JobReport* before, bool with_actors);

}  // namespace troupe::tools
