// `troupe waits`.
#include <iostream>
#include <nlohmann/json.hpp>

#include "tools/watch/asking.h"

namespace troupe::tools {

int waits_main(Asking& asking, Flags& flags, const std::vector<std::string>& arguments) {
  flags.add("--json", asking.json, "print what the job tells, as one JSON object");
  if (auto code = flags.parse(arguments, std::cout, std::cerr)) return *code;
  if (auto code = asking.find(true)) return *code;
  const std::string answer = asking.jobs[0].ask("waits");
  if (answer.empty()) {
    asking.say_silent(asking.jobs[0]);
    return 1;
  }
  if (asking.json) {
    std::cout << answer << "\n";
    return 0;
  }
  const auto all = nlohmann::json::parse(answer);
  for (const auto& wait : all.at("waits")) {
    std::cout << wait.at("line").get<std::string>() << "\n";
    for (const auto& step : wait.at("way")) std::cout << "    " << step.get<std::string>() << "\n";
  }
  if (all.at("waits").empty()) std::cout << "nobody waits\n";
  return 0;
}

}  // namespace troupe::tools
