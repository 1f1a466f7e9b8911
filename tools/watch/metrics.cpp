// `troupe metrics`.
#include <iostream>

#include "tools/watch/asking.h"
#include "tools/watch/prometheus.h"
#include "tools/watch/report.h"

namespace troupe::tools {

int metrics_main(Asking& asking, Flags& flags, const std::vector<std::string>& arguments) {
  flags.add("--json", asking.json, "print what the job tells, one JSON object a line");
  if (auto code = flags.parse(arguments, std::cout, std::cerr)) return *code;
  if (auto code = asking.find(false)) return *code;
  int code = 0;
  std::vector<JobReport> reports;
  for (const RunningJob& job : asking.jobs) {
    const std::string answer = job.ask("report");
    if (answer.empty()) {
      asking.say_silent(job);
      code = 1;
    } else if (asking.json) {
      std::cout << answer << "\n";
    } else {
      reports.push_back(JobReport::parse(answer));
    }
  }
  std::cout << prometheus_text(reports);
  return code;
}

}  // namespace troupe::tools
