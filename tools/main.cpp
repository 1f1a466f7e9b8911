// The `troupe` command.
#include <iostream>

#include "core/base/error.h"
#include "core/base/standard_output.h"
#include "ops/environment.h"
#include "tools/flags/flags.h"
#include "tools/launch/run.h"
#include "tools/launch/ways.h"
#ifdef TROUPE_REPL
#include "tools/repl/repl.h"
#endif

int main(int argc, char** argv) {
  troupe::guard_output();
  const std::vector<std::string> arguments(argv + (argc > 0), argv + argc);
  const std::string verb = arguments.empty() ? "--help" : arguments[0];
  if (verb == "run") return troupe::tools::run_main({arguments.begin() + 1, arguments.end()});
  if (verb == "ways") return troupe::tools::ways_main({arguments.begin() + 1, arguments.end()});
  if (verb == "repl") {
#ifdef TROUPE_REPL
    return troupe::repl::repl_main({arguments.begin() + 1, arguments.end()});
#else
    std::cerr << "troupe: this troupe was built without its shell: install Debian's liblua5.4-dev and "
                 "libedit-dev, and build it again\n";
    return 2;
#endif
  }
#ifdef TROUPE_REPL
  if (verb == "repl-worker") return troupe::repl::repl_worker_main({arguments.begin() + 1, arguments.end()});
#endif
  if (verb == "--version") {
    try {
      const std::string levels = troupe::ops::cpu_levels();
      std::cout << "troupe " << troupe::tools::version() << "\ncpu level: " << levels << "\n";
      return 0;
    } catch (const troupe::Error& e) {
      std::cerr << "troupe: " << e.what() << "\n";
      return 2;
    }
  }
  if (verb == "--help" || verb == "-h") {
    std::cout << "Usage: troupe <verb> [arguments]\n\n"
                 "  run        start a program as several workers (troupe run --help)\n"
                 "  repl       a prompt and scripts that drive a cluster, in Lua (troupe repl --help)\n"
                 "  ways       print which way tensors take between workers (troupe ways --help)\n"
                 "  --version  print the version, and the instructions that operators use\n"
                 "  --help     print this help\n";
    return arguments.empty() ? 2 : 0;
  }
  const auto near = troupe::nearest(verb, {"run", "repl", "ways", "--version", "--help"});
  std::cerr << "troupe: unknown verb '" << verb << "'" << (near.empty() ? "" : "; did you mean " + near + "?")
            << " (see troupe --help)\n";
  return 2;
}
