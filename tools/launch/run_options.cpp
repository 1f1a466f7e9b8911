// The flags of `troupe run`; names as torchrun's where it has them.
#include "tools/launch/run_options.h"

#include <fmt/format.h>

#include <ostream>

#include "tools/flags/flags.h"

namespace troupe::tools {

std::optional<int> parse_run(const std::vector<std::string>& arguments, RunOptions& options,
                             std::ostream& out, std::ostream& err) {
  Flags flags("troupe run", "Starts a program as several workers, w0, w1, ...; w0 is the driver.");
  flags.rest("program [arguments...]", options.command,
             "what to start: a path, or a name beside `troupe` or in PATH; flags end here");
  flags.add("-n,--nproc-per-node", options.processes, "processes on this host", {1, 1024})
      .add("--nnodes", options.nodes, "hosts; start `troupe run` once on each", {1, 65536})
      .add("--node-rank", options.node_rank, "which of the hosts this is, from 0", {0, 65535})
      .add("--master-addr", options.master_addr, "address of host 0, for several hosts")
      .add("--master-port", options.master_port, "port on host 0", {1, 65535})
      .add("--token-file", options.token_file, "file with the cluster's secret, mode 0600")
      .add("--grace", options.grace, "seconds to end in, before a kill", {0, 86400})
      .add("--keep-going", options.keep_going,
           "go on when a worker other than w0 fails: the driver sees it as lost, and its code is the job's")
      .add("--log-dir", options.log_dir, "also write each worker's output to DIR/w<rank>.log")
      .add("--prefix-all", options.prefix_all, "prefix the driver's output as well")
      .add("--dry-run", options.dry_run, "print what would be started, and start nothing");
  flags.footer(
      "The secret: --token-file, else TROUPE_TOKEN, else TROUPE_TOKEN_FILE, else a random one; on "
      "several hosts ~/.config/troupe/token.\n"
      "Exit code: the first failing worker's, 128+n for signal n; 130 after Ctrl-C; 2 for bad arguments.\n"
      "Examples:  troupe run -n 3 digits --epochs 2\n"
      "           troupe run -n 4 --nnodes 2 --node-rank 1 --master-addr 10.0.0.1 ./prog");
  if (auto code = flags.parse(arguments, out, err)) return code;

  std::string wrong;
  if (options.command.empty())
    wrong = "no program given; for instance: troupe run -n 3 digits";
  else if (options.node_rank >= options.nodes)
    wrong =
        fmt::format("--node-rank is {}, expected less than --nnodes {}", options.node_rank, options.nodes);
  else if (options.nodes > 1 && options.master_addr.empty())
    wrong = fmt::format("--nnodes {} needs --master-addr, the address of host 0", options.nodes);
  if (wrong.empty()) return std::nullopt;
  err << "troupe run: " << wrong << " (see troupe run --help)\n";
  return 2;
}

}  // namespace troupe::tools
