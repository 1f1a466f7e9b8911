// What `troupe run` is asked to do: its flags, checked.
#pragma once
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/launch/hosts.h"

namespace troupe::tools {

/// Where one stream of a worker goes.
struct StreamPlaces {
  bool shown = true, logged = false;
};

/// torchrun's --tee and --redirects: 0 to 3, bit 0 for standard output and bit 1 for standard error, of all
/// workers of a host or of single ones: "3", "0:1,1:2".
struct StreamChoice {
  int all = 0;
  std::map<int64_t, int> of;  ///< by number on the host
  bool has(int64_t local, int stream) const {
    const auto at = of.find(local);
    return (at == of.end() ? all : at->second) >> stream & 1;
  }
};

/// What --elastic, --spares and --wait say.
struct ElasticRun {
  int64_t least = 0, most = 0;  ///< workers, w0 among them
  int64_t spares = 0;
  double wait = 30;  ///< seconds for a worker, where there are fewer than `least`
};

struct RunOptions {
  int64_t processes = 1;  ///< on this host
  int64_t nodes = 1, node_rank = 0;
  std::vector<Host> hosts;            ///< all that this command starts workers on; empty: on this one
  std::string rsh = "ssh";            ///< with its flags
  std::vector<std::string> exported;  ///< variables for workers on other hosts
  std::string master_addr;            ///< empty: this host only, or the first of `hosts`
  std::optional<int64_t> master_port;
  std::string id;                   ///< of the job; empty: made up
  std::string token_file, log_dir;  ///< empty: none
  StreamChoice tee, redirects;
  bool chooses_streams = false;  ///< `tee` or `redirects` was given: nothing else goes into log files
  double grace = 12;             ///< seconds between asking processes to end and killing them
  bool prefix_all = false, dry_run = false, check = false;
  int64_t max_restarts = 0;  ///< of all processes, without a checkpoint between them
  bool control = false;      ///< guests of the job may call its actors
  bool rehearse = false;     ///< first steps only, killed and compared
  std::string rehearsal;     ///< of this run, for its workers; empty: it is none
  std::optional<ElasticRun> elastic;
  bool keep_going = false;           ///< a worker that fails, other than w0, does not end the job
  std::vector<std::string> command;  ///< program and its arguments; empty only with `check`

  /// How many are started, spares among them.
  int64_t world_size() const;
  /// Of standard output (0) or error (1) of a worker, by its number on its host.
  StreamPlaces places(int64_t local, int stream) const;
};

/// Without "[run] ": the launcher's lines begin in their own way.
std::string without_tag(const std::string& message);

/// Reads the arguments after `troupe run`. Returns an exit code where there is nothing to start, as
/// Flags::parse.
std::optional<int> parse_run(const std::vector<std::string>& arguments, RunOptions& options,
                             std::ostream& out, std::ostream& err);

}  // namespace troupe::tools
