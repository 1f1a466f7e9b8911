// What each worker is told: program, arguments, environment. Pure, but for the random numbers and the file
// system.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tools/launch/run_options.h"

namespace troupe::tools {

/// Reads one environment variable; nullptr if it is not set. std::getenv, or a table in tests.
using Getenv = std::function<const char*(const char*)>;
using Variables = std::vector<std::pair<std::string, std::string>>;

struct Job {
  std::string id;       ///< the same on all hosts
  std::string address;  ///< where workers meet: "unix:@troupe-..." or "tcp:host:port"
  std::string token;
  std::string program;  ///< path of an executable file
};

/// Decides id, address and token, and finds the program. Throws `invalid` for a bad token, a missing one with
/// several hosts, or a program that is not there.
Job make_job(const RunOptions& options, const Getenv& env);

/// The variables of a process: torchrun's names, and Troupe's own. `local` counts on this host.
Variables variables_of(const RunOptions& options, const Job& job, int64_t local);

/// Worker number over all hosts; its name is "w" + rank.
inline int64_t rank_of(const RunOptions& options, int64_t local) {
  return options.node_rank * options.processes + local;
}

/// A path is taken as given; a plain name is looked up in `beside`, then in `path` (as PATH). Throws
/// `invalid` with a hint.
std::string find_program(const std::string& name, const std::string& beside, const std::string& path);

/// One line of shell that would start the process; the token is not shown.
std::string dry_run_line(const RunOptions& options, const Job& job, int64_t local);

}  // namespace troupe::tools
