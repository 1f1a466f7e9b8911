// Runs the built `troupe` command and watches every process that comes of it.
#pragma once
#include "tests/support/places.h"
#include "tests/support/process.h"

namespace troupe::testing {

/// `troupe run ARGUMENTS`, started by the constructor.
class Launcher : public Process {
 public:
  explicit Launcher(std::vector<std::string> arguments, std::vector<std::string> environment = {})
      : Process(with_command(std::move(arguments)), std::move(environment)) {}

 private:
  static std::vector<std::string> with_command(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {kTroupeCommand, "run"});
    return arguments;
  }
};

/// The process of a worker, whose actor has printed "pid w1 123".
inline pid_t pid_of(Process& run, const std::string& worker) {
  const std::string start = "pid " + worker + " ";
  run.await(start);
  const size_t at = run.output.find(start) + start.size();
  while (run.output.find('\n', at) == std::string::npos)
    run.await("\n", Process::count(run.output, "\n") + 1);
  return std::stoi(run.output.substr(at));
}

/// Path of a program that the build puts beside `troupe`.
inline std::string program(const std::string& name) {
  const std::string troupe = kTroupeCommand;
  return troupe.substr(0, troupe.rfind('/') + 1) + name;
}

}  // namespace troupe::testing
