// `troupe repl`: a cluster and a prompt, or a script.
#pragma once
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "troupe/checkpoint/checkpoints.h"

namespace troupe::repl {

struct ReplOptions {
  int workers = 0;                    ///< -n; 0: not given
  std::optional<std::string> attach;  ///< --attach: a running job
  std::string program;                ///< whose workers are started; empty: the shell's own
  std::vector<std::string> program_arguments;
  std::optional<std::string> code;     ///< -e
  std::string script;                  ///< file.lua; "-": standard input
  std::vector<std::string> arguments;  ///< arg in Lua: the script, then what follows it
  bool interactive = false;            ///< -i
  double timeout = 60;                 ///< seconds that a call may take
  Checkpoints checkpoints = {};        ///< of job()
};

/// Reads the arguments after `troupe repl`. An exit code where there is nothing to start.
std::optional<int> parse_repl(const std::vector<std::string>& arguments, ReplOptions& options,
                              std::ostream& out, std::ostream& err);

/// The verb: arguments after `repl`, to exit code: 0, what os.exit() was given, 1 where a script failed, 2
/// for wrong flags, 3 where workers did not come together, 130 after Ctrl-C, 143 after SIGTERM.
int repl_main(const std::vector<std::string>& arguments);
/// The hidden verb of workers that a shell starts of its own program: arguments after `repl-worker`.
int repl_worker_main(const std::vector<std::string>& arguments);

}  // namespace troupe::repl
