// `troupe ps`.
#include <poll.h>

#include <iostream>

#include "tools/watch/asking.h"
#include "tools/watch/report.h"

namespace troupe::tools {

int ps_main(Asking& asking, Flags& flags, const std::vector<std::string>& arguments) {
  bool actors = false;
  double seconds = 0.2;
  flags
      .add("-a,--actors", actors,
           "list actors, with the calls in their mailboxes and what they are at work on")
      .add("--seconds", seconds, "between two looks; shares of time are of that", {0.01, 60})
      .add("--json", asking.json, "print what the job tells, one JSON object a line");
  if (auto code = flags.parse(arguments, std::cout, std::cerr)) return *code;
  if (auto code = asking.find(false)) return *code;
  int code = 0;
  std::vector<std::string> first;
  if (!asking.json) {
    for (const RunningJob& job : asking.jobs) first.push_back(job.ask("report"));
    poll(nullptr, 0, static_cast<int>(seconds * 1000));
  }
  for (size_t i = 0; i < asking.jobs.size(); ++i) {
    const std::string answer = asking.jobs[i].ask("report");
    if (answer.empty()) {
      asking.say_silent(asking.jobs[i]);
      code = 1;
      continue;
    }
    if (asking.json) {
      std::cout << answer << "\n";
      continue;
    }
    std::optional<JobReport> before;
    if (!first[i].empty()) before = JobReport::parse(first[i]);
    std::cout << (i ? "\n" : "") << ps_text(JobReport::parse(answer), before ? &*before : nullptr, actors);
  }
  return code;
}

}  // namespace troupe::tools
