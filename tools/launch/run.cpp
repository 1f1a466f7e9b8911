// What the flags ask for: a job, or words about one.
#include "tools/launch/run.h"

#include <fmt/format.h>
#include <signal.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iostream>

#include "core/base/error.h"
#include "tools/launch/agent.h"
#include "tools/launch/assignment.h"
#include "tools/launch/check.h"
#include "tools/launch/rehearse.h"
#include "tools/launch/supervisor.h"

namespace troupe::tools {
namespace {

Job job_for(const RunOptions& options, int64_t restart) {
  return make_job(
      options, [](const char* name) { return std::getenv(name); }, restart);
}

// Nothing is left to clean up: a new Ctrl-C may now end us even in the middle of a write.
void give_signals_back() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGINT, SIGTERM, SIGQUIT, SIGHUP}) sigaddset(&set, signal);
  const timespec at_once{};
  while (sigtimedwait(&set, nullptr, &at_once) > 0 || errno == EINTR) {
  }
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace

int run_job(const RunOptions& options, Job job) {
  JobOutput output;
  RestartPolicy policy(options.max_restarts);
  for (;;) {
    Supervisor supervisor(options, job, policy, output);
    supervisor.run();
    const Attempt attempt = supervisor.attempt();
    if (!policy.take(attempt)) {
      if (policy.most() > 0 && policy.worth_one(attempt))
        output.say(fmt::format("no restart is left: {} without a checkpoint in between (--max-restarts)",
                               policy.used()));
      give_signals_back();
      output.out.flush();
      // A reader that has gone has seen enough (EPIPE); a disk that is full has not.
      if (const int why = output.out.failure(); why && why != EPIPE) {
        output.lost = true;
        output.say(fmt::format("standard output cannot be written: {}", std::strerror(why)));
      }
      output.err.flush();
      const int code = supervisor.exit_code();
      return code ? code : output.lost;
    }
    output.say(fmt::format("all start again: restart {} of {}{}", policy.used(), policy.most(),
                           attempt.committed ? ", from a checkpoint" : ""));
    job = job_for(options, job.restart + 1);
  }
}

int run_main(const std::vector<std::string>& arguments) {
  if (arguments == std::vector<std::string>{kAgentFlag}) return agent_main();
  RunOptions options;
  if (auto code = parse_run(arguments, options, std::cout, std::cerr)) return *code;
  try {
    const Job job = job_for(options, 0);
    if (options.check) {
      std::cout << check_text(options, job) << std::flush;
      return options.hosts.empty() ? 0 : run_job(options, job);
    }
    if (options.rehearse && !options.dry_run)
      return rehearse(options, [](const RunOptions& o) {
        return run_job(o, make_job(o, [](const char* name) { return std::getenv(name); }));
      });
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
