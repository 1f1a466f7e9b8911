// `troupe logs`.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "tools/watch/asking.h"

namespace troupe::tools {
namespace {

struct Line {
  double time = 0;
  std::string worker, text;
};

// "09:30:12.123", of this host's day.
std::string clock_text(double time) {
  const auto seconds = static_cast<time_t>(std::floor(time));
  tm day{};
  localtime_r(&seconds, &day);
  return fmt::format("{:02}:{:02}:{:02}.{:03}", day.tm_hour, day.tm_min, day.tm_sec,
                     static_cast<int>((time - std::floor(time)) * 1000));
}

// What is new since the last time, of one process; false if it does not answer.
bool read_new(const RunningJob& job, const internal::watch::Door& door, std::map<pid_t, uint64_t>& next,
              std::vector<Line>& lines) {
  const RunningJob alone{job.job, {door}};
  const std::string answer = alone.ask("logs " + std::to_string(next[door.pid]), 2);
  if (answer.empty()) return false;
  const auto all = nlohmann::json::parse(answer);
  if (all.contains("error")) return false;
  for (const auto& line : all.at("lines"))
    lines.push_back({line.at("time"), all.at("worker"), line.at("text")});
  next[door.pid] = all.at("next");
  return true;
}

}  // namespace

int logs_main(Asking& asking, Flags& flags, const std::vector<std::string>& arguments) {
  bool follow = false;
  flags.add("-f,--follow", follow, "go on with new lines until the job ends")
      .add("--json", asking.json, "print each line as a JSON object");
  if (auto code = flags.parse(arguments, std::cout, std::cerr)) return *code;
  if (auto code = asking.find(true)) return *code;
  std::map<pid_t, uint64_t> next;
  const std::string name = asking.jobs[0].job;
  int code = 0;
  for (bool first = true;; first = false) {
    std::vector<Line> lines;
    for (const auto& door : asking.jobs[0].doors)
      if (!read_new(asking.jobs[0], door, next, lines) && first) {
        std::cerr << "troupe logs: w" << door.rank << " (process " << door.pid << ") does not answer\n";
        code = 1;
      }
    std::ranges::stable_sort(lines, {}, &Line::time);
    for (const Line& line : lines)
      if (asking.json)
        std::cout << nlohmann::ordered_json{{"time", line.time}, {"worker", line.worker}, {"text", line.text}}
                         .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
                  << "\n";
      else
        std::cout << clock_text(line.time) << " [" << line.worker << "] " << line.text << "\n";
    std::cout.flush();
    if (!follow || !std::cout) return code;
    poll(nullptr, 0, 300);
    asking.jobs = running_jobs(name);
    if (asking.jobs.empty()) return 0;
  }
}

}  // namespace troupe::tools
