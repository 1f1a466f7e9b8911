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
  std::string id;           ///< the same on all hosts
  std::string address;      ///< where workers meet: "unix:@troupe-..." or "tcp:host:port"
  std::string master_addr;  ///< the host of it; empty: this one only
  int64_t port = 0;
  std::string token;
  std::string secret_from;  ///< where it comes from, in words
  std::string program;      ///< path of an executable file; empty: each host looks for it
  int64_t restart = 0;      ///< how often all processes were started before
};

/// Decides id, address and token, and finds the program. Throws `invalid` for a bad token, a missing one with
/// several hosts, or a program that is not there. What is left of an earlier start has another id, so that
/// the two refuse each other.
Job make_job(const RunOptions& options, const Getenv& env, int64_t restart = 0);

/// The workers of one host.
struct Share {
  int64_t node = 0, first = 0, processes = 1;
};
/// Of the host with that number, from 0.
Share share_of(const RunOptions& options, int64_t node);

/// The variables of every process of a host: torchrun's names, and Troupe's own.
Variables common_variables(const RunOptions& options, const Job& job, const Share& share);
/// Those of a single one: `local` counts on its host.
Variables numbers_of(int64_t rank, int64_t local);
/// Both.
Variables variables_of(const RunOptions& options, const Job& job, const Share& share, int64_t local);

/// A path is taken as given; a plain name is looked up in `beside`, then in `path` (as PATH). Throws
/// `invalid` with a hint.
std::string find_program(const std::string& name, const std::string& beside, const std::string& path);

/// As one word of a shell.
std::string shell_quoted(const std::string& text);
/// One line of shell that would start the process; the token is not shown.
std::string dry_run_line(const RunOptions& options, const Job& job, const Share& share, int64_t local);

}  // namespace troupe::tools
