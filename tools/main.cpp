// The `troupe` command.
#include <iostream>

#include "core/base/error.h"
#include "tools/flags/flags.h"
#include "tools/launch/run.h"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + (argc > 0), argv + argc);
  const std::string verb = arguments.empty() ? "--help" : arguments[0];
  if (verb == "run") return troupe::tools::run_main({arguments.begin() + 1, arguments.end()});
  if (verb == "--version") {
    std::cout << "troupe " << troupe::tools::version() << "\n";
    return 0;
  }
  if (verb == "--help" || verb == "-h") {
    std::cout << "Usage: troupe <verb> [arguments]\n\n"
                 "  run        start a program as several workers (troupe run --help)\n"
                 "  --version  print the version\n"
                 "  --help     print this help\n";
    return arguments.empty() ? 2 : 0;
  }
  const auto near = troupe::nearest(verb, {"run", "--version", "--help"});
  std::cerr << "troupe: unknown verb '" << verb << "'" << (near.empty() ? "" : "; did you mean " + near + "?")
            << " (see troupe --help)\n";
  return 2;
}
