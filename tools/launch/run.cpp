// What the flags ask for: a job, or words about one.
#include "tools/launch/run.h"

#include <cstdlib>
#include <iostream>

#include "core/base/error.h"
#include "tools/launch/agent.h"
#include "tools/launch/assignment.h"
#include "tools/launch/check.h"
#include "tools/launch/supervisor.h"

namespace troupe::tools {

int run_job(const RunOptions& options, const Job& job) { return Supervisor(options, job).run(); }

int run_main(const std::vector<std::string>& arguments) {
  if (arguments == std::vector<std::string>{kAgentFlag}) return agent_main();
  RunOptions options;
  if (auto code = parse_run(arguments, options, std::cout, std::cerr)) return *code;
  try {
    const Job job = make_job(options, [](const char* name) { return std::getenv(name); });
    if (options.check) {
      std::cout << check_text(options, job) << std::flush;
      return options.hosts.empty() ? 0 : run_job(options, job);
    }
    if (!options.dry_run) return run_job(options, job);
    const bool here = options.hosts.empty();
    for (int64_t node = here ? options.node_rank : 0; node < options.nodes; ++node) {
      const Share share = share_of(options, node);
      if (!here) std::cout << "on " << way_to(options, node) << ":\n";
      for (int64_t local = 0; local < share.processes; ++local)
        std::cout << dry_run_line(options, job, share, local) << "\n";
      if (here) break;
    }
    return 0;
  } catch (const Error& e) {
    std::cerr << "troupe run: " << without_tag(e.message()) << "\n";
    return e.kind() == ErrorKind::invalid ? 2 : 1;
  }
}

}  // namespace troupe::tools
