// The number comes from worker 0, so that pods, tasks of Slurm and terminals need not agree on one.
#include "tools/launch/join.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <optional>

#include "core/base/error.h"
#include "net/rendezvous.h"
#include "tools/flags/flags.h"
#include "tools/launch/job.h"
#include "tools/launch/process.h"
#include "troupe/cluster/seat.h"

namespace troupe::tools {
namespace {

constexpr const char* kExample = "troupe join 10.0.0.1:29500 ./train";

struct JoinOptions {
  std::string address, token_file;
  int64_t wait = 60;
  std::vector<std::string> command;
};

std::optional<std::string> variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

// The address may stand before the flags or behind them.
std::optional<int> parse(std::vector<std::string> arguments, JoinOptions& options) {
  if (!arguments.empty() && !arguments[0].starts_with("-")) {
    options.address = arguments[0];
    arguments.erase(arguments.begin());
  }
  Flags flags("troupe join", "Starts a program as one more worker of an elastic job that runs.");
  flags.rest(options.address.empty() ? "address program [arguments...]" : "program [arguments...]",
             options.command, "where worker 0 is, as 10.0.0.1:29500, then what to start, as the job runs it");
  flags.add("--token-file", options.token_file, "file with the cluster's secret, mode 0600")
      .add("--wait", options.wait, "seconds for worker 0 to come", {1, 86400});
  flags.footer(
      "The job: troupe run --elastic=2:8 --master-addr 10.0.0.1 --token-file F ./train, on the host of that "
      "address.\n"
      "The secret: --token-file, else TROUPE_TOKEN, else TROUPE_TOKEN_FILE, else ~/.config/troupe/token.\n"
      "SIGTERM: the worker leaves between two steps. Exit code: the program's; 2 where it may not join, 3 "
      "where\nnobody is at the address.\n"
      "Examples:  troupe join 10.0.0.1:29500 --token-file F ./train\n"
      "           srun -n 4 --overlap troupe join node1:29500 ./train");
  if (auto code = flags.parse(arguments, std::cout, std::cerr)) return code;
  if (options.address.empty() && !options.command.empty()) {
    options.address = options.command[0];
    options.command.erase(options.command.begin());
  }
  if (options.address.empty() || options.command.empty())
    throw_invalid(fmt::format("no {} given; for instance: {}",
                              options.address.empty() ? "address" : "program", kExample));
  if (!options.address.starts_with("tcp:") && !options.address.starts_with("unix:"))
    options.address = "tcp:" + options.address;
  return std::nullopt;
}

// A launcher tells its workers this; here it is known but for the number.
LaunchEnvironment job_of(const JoinOptions& options) {
  const auto environment =
      LaunchEnvironment::read([&](const std::string& name) -> std::optional<std::string> {
        if (name == "TROUPE_RANK") return "1";
        if (name == "TROUPE_WORLD_SIZE") return "2";
        if (name == "TROUPE_ADDRESS") return options.address;
        if (name == "TROUPE_TOKEN_FILE" && !options.token_file.empty()) return options.token_file;
        if (name == "TROUPE_TOKEN" && !options.token_file.empty()) return std::nullopt;
        if (name == "TROUPE_JOB" || name == "TROUPE_ELASTIC") return std::nullopt;  // worker 0 says it
        return variable(name);
      });
  return environment.value();
}

void become(const std::string& program, const JoinOptions& options, const LaunchEnvironment& seat) {
  Variables variables{{"TROUPE_RANK", std::to_string(seat.rank)},
                      {"TROUPE_WORLD_SIZE", std::to_string(seat.world)},
                      {"TROUPE_ADDRESS", seat.address},
                      {"TROUPE_TOKEN", seat.token}};
  if (!seat.job.empty()) variables.emplace_back("TROUPE_JOB", seat.job);
  if (seat.elastic) variables.emplace_back("TROUPE_ELASTIC", seat.elastic->text());
  auto words = options.command;
  auto environment = environment_with(
      variables, {"TROUPE_TOKEN_FILE", "TROUPE_JOB", "TROUPE_ELASTIC", internal::net::kRendezvousVariable});
  words[0] = program;
  std::vector<char*> argv, envp;
  for (auto& word : words) argv.push_back(word.data());
  for (auto& entry : environment) envp.push_back(entry.data());
  argv.push_back(nullptr), envp.push_back(nullptr);
  execve(program.c_str(), argv.data(), envp.data());
  throw_error(ErrorKind::failed, fmt::format("{} cannot be started: {}", program, std::strerror(errno)));
}

}  // namespace

int join_main(const std::vector<std::string>& arguments) {
  const auto say = [](std::string text) {
    if (const size_t end = text.find("] "); text.starts_with("[") && end != std::string::npos)
      text.erase(0, end + 2);
    std::cerr << "troupe join: " << text << "\n";
  };
  JoinOptions options;
  try {
    if (const auto code = parse(arguments, options)) return *code;
    std::error_code ignored;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", ignored);
    const std::string program =
        find_program(options.command[0], self.parent_path(), variable("PATH").value_or(""));
    become(program, options, internal::take_seat(job_of(options), std::chrono::seconds(options.wait)));
  } catch (const Error& e) {
    say(e.message());
    return e.kind() == ErrorKind::invalid ? 2 : e.kind() == ErrorKind::disconnected ? 3 : 1;
  }
  return 1;
}

}  // namespace troupe::tools
