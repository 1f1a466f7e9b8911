// What `troupe run` is asked to do: its flags, checked.
#pragma once
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace troupe::tools {

struct RunOptions {
  int64_t processes = 1;  ///< on this host
  int64_t nodes = 1, node_rank = 0;
  std::string master_addr;  ///< empty: this host only
  int64_t master_port = 29500;
  std::string token_file, log_dir;  ///< empty: none
  double grace = 12;                ///< seconds between asking processes to end and killing them
  bool prefix_all = false, dry_run = false;
  bool keep_going = false;           ///< a worker that fails, other than w0, does not end the job
  std::vector<std::string> command;  ///< program and its arguments; never empty

  int64_t world_size() const { return processes * nodes; }
};

/// Reads the arguments after `troupe run`. Returns an exit code where there is nothing to start, as
/// Flags::parse.
std::optional<int> parse_run(const std::vector<std::string>& arguments, RunOptions& options,
                             std::ostream& out, std::ostream& err);

}  // namespace troupe::tools
