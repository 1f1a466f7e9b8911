// Examples that run, alone or over processes, and what they print.
#pragma once
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/process/launcher.h"
#include "tests/support/folder.h"

namespace troupe::testing {

/// Runs a program that ends well and draws a chart, alone or over that many processes; its standard output.
inline std::string run(const std::string& name, const std::vector<std::string>& flags, int processes = 0) {
  Folder folder;
  const std::string chart = (folder.path / "chart.svg").string();
  std::vector<std::string> command{program(name), "--chart", chart};
  command.insert(command.end(), flags.begin(), flags.end());
  if (processes > 0)
    command.insert(command.begin(), {kTroupeCommand, "run", "-n", std::to_string(processes)});
  Process process(command);
  const int code = process.exit_code();
  INFO(process.output << process.errors);
  REQUIRE(code == 0);
  CHECK(process.nothing_left());
  CHECK(content(chart).find("</svg>") != std::string::npos);
  return process.output;
}

/// What a program says of its training, without the name of its picture.
inline std::string result(const std::string& output) { return output.substr(0, output.rfind("picture")); }

/// The number behind `text`.
inline double number_after(const std::string& output, const std::string& text) {
  INFO(output);
  const size_t at = output.find(text);
  REQUIRE(at != std::string::npos);
  return std::strtod(output.c_str() + at + text.size(), nullptr);
}

}  // namespace troupe::testing
