// `troupe trace`.
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tools/watch/asking.h"
#include "tools/watch/report.h"

namespace troupe::tools {

int trace_main(Asking& asking, Flags& flags, const std::vector<std::string>& arguments) {
  double seconds = 1;
  std::optional<int64_t> steps;
  std::string file = "trace.json";
  bool operators = false;
  flags.add("-s,--seconds", seconds, "to follow the job for", {0.01, 60})
      .add("--steps", steps, "of the driver to follow instead, for a minute at most", {1, 1e6})
      .add("--operators", operators, "note each operator of tensors, too")
      .output("-o,--output", file, "where the timeline goes, for ui.perfetto.dev")
      .add("--json", asking.json, "print the timeline, and write no file");
  if (auto code = flags.parse(arguments, std::cout, std::cerr)) return *code;
  if (auto code = asking.find(true)) return *code;
  if (!asking.json) flags.check_outputs();
  const std::string question =
      (steps ? "trace " + std::to_string(*steps) + " steps" : "trace " + std::to_string(seconds)) +
      (operators ? " with operators" : "");
  // Whoever is asked answers when the time is over, so one is asked: the driver, or the next that is there.
  std::string answer;
  for (const auto& door : asking.jobs[0].doors) {
    answer = RunningJob{asking.jobs[0].job, {door}}.ask(question, (steps ? 60 : seconds) + 30);
    if (!answer.empty()) break;
  }
  if (answer.empty()) {
    asking.say_silent(asking.jobs[0]);
    return 1;
  }
  const auto all = nlohmann::json::parse(answer);
  if (all.contains("error")) {
    std::cerr << "troupe trace: the job answers: " << all.at("error").get<std::string>() << "\n";
    return 1;
  }
  if (asking.json) {
    std::cout << answer << "\n";
    return 0;
  }
  std::ofstream out(file);
  out << answer << std::flush;
  if (!out) {
    std::cerr << "troupe trace: " << file << " cannot be written\n";
    return 1;
  }
  std::cout << all.at("otherData").at("breakdown").get<std::string>() << file << ": "
            << bytes_text(static_cast<double>(answer.size())) << ", for ui.perfetto.dev\n";
  return 0;
}

}  // namespace troupe::tools
