#include "tools/launch/ways.h"

#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/error.h"
#include "tools/flags/flags.h"
#include "tools/launch/run.h"
#include "troupe/cluster/launch.h"
#include "troupe/ways/ways.h"

namespace troupe::tools {
namespace {

std::string json_text(const Ways& ways) {
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array(), groups = tensors;
  for (const TensorWay& w : ways.tensors)
    tensors.push_back({{"from", w.from},
                       {"from_device", w.from_device},
                       {"to", w.to},
                       {"to_device", w.to_device},
                       {"way", w.way},
                       {"at_least", w.at_least},
                       {"below", w.below},
                       {"why", w.why}});
  for (const GroupWay& w : ways.groups)
    groups.push_back({{"operation", w.operation},
                      {"devices", w.devices},
                      {"way", w.way},
                      {"at_least", w.at_least},
                      {"why", w.why}});
  return nlohmann::ordered_json{{"tensors", tensors}, {"groups", groups}}.dump(2) + "\n";
}

}  // namespace

int ways_main(const std::vector<std::string>& arguments) {
  std::optional<int64_t> processes;
  bool json = false;
  Flags flags("troupe ways",
              "Prints which way tensors take between workers, from which size on, and why no "
              "better one.");
  flags
      .add("-n,--nproc-per-node", processes, "processes to start on this host (2 unless given)",
           {2, kMostProcesses})
      .add("--json", json, "print one JSON object, for programs");
  flags.footer(
      "It looks at the processes of a job, as a launcher starts them: with its hosts and its environment.\n"
      "Examples:  troupe ways -n 4\n"
      "           troupe run -H 10.0.0.1:4,10.0.0.2:4 troupe ways\n"
      "           srun -n 8 troupe ways --json");
  if (auto code = flags.parse(arguments, std::cout, std::cerr)) return *code;
  bool is_launched = true;
  try {
    is_launched = LaunchEnvironment::read().has_value();
  } catch (const Error&) {  // launch() says so
  }
  if (is_launched && processes) {
    std::cerr << "troupe ways: -n starts processes, and a launcher has started this one: leave -n out\n";
    return 2;
  }
  if (is_launched)
    return launch([json](Cluster& cluster) {
      const Ways ways = cluster.ways();
      std::cout << (json ? json_text(ways) : ways.print()) << std::flush;
    });
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    std::cerr << "troupe ways: /proc/self/exe cannot be read: " << error.message() << "\n";
    return 1;
  }
  std::vector<std::string> job{"-n", std::to_string(processes.value_or(2)), self.string(), "ways"};
  if (json) job.emplace_back("--json");
  return run_main(job);
}

}  // namespace troupe::tools
