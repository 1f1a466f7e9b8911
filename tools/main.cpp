// The `troupe` command.
#include <iostream>

#include "core/base/error.h"
#include "core/base/standard_output.h"
#include "ops/environment.h"
#include "tools/data/data.h"
#include "tools/flags/flags.h"
#include "tools/launch/join.h"
#include "tools/launch/run.h"
#include "tools/launch/ways.h"
#include "tools/plan/plan.h"
#include "tools/watch/watch.h"
#ifdef TROUPE_DASHBOARD
#include "tools/dashboard/dashboard.h"
#endif
#ifdef TROUPE_REPL
#include "tools/repl/repl.h"
#endif

static constexpr char kUsage[] =
    "Usage: troupe <verb> [arguments]\n\n"
    "  run        start a program as several workers (troupe run --help)\n"
    "  join       start a program as one more worker of an elastic job (troupe join --help)\n"
    "  repl       a prompt and scripts that drive a cluster, in Lua (troupe repl --help)\n"
    "  data       make and look at files of tokens (troupe data --help)\n"
    "  plan       say how to cut a model over workers, and why (troupe plan --help)\n"
    "  ways       print which way tensors take between workers (troupe ways --help)\n"
    "  ps         list jobs that run, and what their workers do (troupe ps --help)\n"
    "  top        show a job as it goes on, and what slows it down (troupe top --help)\n"
    "  waits      say what keeps a job waiting (troupe waits --help)\n"
    "  trace      write a timeline of a job that runs (troupe trace --help)\n"
    "  metrics    print a job's counters for Prometheus (troupe metrics --help)\n"
    "  dashboard  serve a page about a job, for a browser on this host (troupe dashboard --help)\n"
    "  logs       print a job's last log lines (troupe logs --help)\n"
    "  --version  print the version, and the instructions that operators use\n"
    "  --help     print this help\n";

int main(int argc, char** argv) {
  troupe::guard_output();
  const std::vector<std::string> arguments(argv + (argc > 0), argv + argc);
  const std::string verb = arguments.empty() ? "--help" : arguments[0];
  if (verb == "run") return troupe::tools::run_main({arguments.begin() + 1, arguments.end()});
  if (verb == "join") return troupe::tools::join_main({arguments.begin() + 1, arguments.end()});
  if (verb == "data") return troupe::tools::data_main({arguments.begin() + 1, arguments.end()});
  if (verb == "plan") return troupe::tools::plan_main({arguments.begin() + 1, arguments.end()});
  if (verb == "ways") return troupe::tools::ways_main({arguments.begin() + 1, arguments.end()});
  if (troupe::tools::is_watch_verb(verb))
    return troupe::tools::watch_main(verb, {arguments.begin() + 1, arguments.end()});
  if (verb == "dashboard") {
#ifdef TROUPE_DASHBOARD
    return troupe::tools::dashboard_main({arguments.begin() + 1, arguments.end()});
#else
    std::cerr << "troupe: this troupe was built without its dashboard: install Debian's libmicrohttpd-dev, "
                 "and build it again\n";
    return 2;
#endif
  }
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
    std::cout << kUsage;
    return arguments.empty() ? 2 : 0;
  }
  const auto near =
      troupe::nearest(verb, {"run", "join", "repl", "data", "plan", "ways", "ps", "top", "waits", "trace",
                             "metrics", "dashboard", "logs", "--version", "--help"});
  std::cerr << "troupe: unknown verb '" << verb << "'" << (near.empty() ? "" : "; did you mean " + near + "?")
            << " (see troupe --help)\n";
  return 2;
}
