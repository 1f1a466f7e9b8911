// The flags of `troupe run`; names as torchrun's and mpirun's where they have them.
#include "tools/launch/run_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <ostream>

#include "core/base/error.h"
#include "core/base/shown.h"
#include "tools/flags/flags.h"

namespace troupe::tools {
namespace {

std::optional<int64_t> whole(std::string_view text, int64_t most) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  return error == std::errc() && end == text.data() + text.size() && n >= 0 && n <= most ? std::optional(n)
                                                                                         : std::nullopt;
}

std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> parts;
  for (size_t from = 0; from <= list.size();) {
    const size_t to = std::min(list.find(',', from), list.size());
    parts.push_back(list.substr(from, to - from));
    from = to + 1;
  }
  return parts;
}

StreamChoice parse_streams(const char* flag, const std::string& text) {
  StreamChoice choice;
  if (text.empty()) return choice;
  if (const auto all = whole(text, 3)) {
    choice.all = int(*all);
    return choice;
  }
  for (const auto& part : parts_of(text)) {
    const size_t colon = part.find(':');
    const auto local = whole(part.substr(0, colon), kMostProcesses - 1),
               streams = whole(colon == std::string::npos ? "" : part.substr(colon + 1), 3);
    if (!local || !streams)
      throw_invalid(
          fmt::format("{} is '{}'; expected 0 (nothing), 1 (standard output), 2 (standard error) or 3 "
                      "(both), or that for single workers of a host, as 0:3,1:2",
                      flag, shown(text)));
    choice.of[*local] = int(*streams);
  }
  return choice;
}

// "host:port", "host", "[::1]:port", "::1"; the port is optional.
void parse_endpoint(const std::string& text, RunOptions& options) {
  const bool bracketed = text.starts_with('[');
  const size_t from = bracketed ? text.find(']') : 0;
  const size_t colon = from == std::string::npos ? from : text.find(':', from);
  const bool v6 = !bracketed && std::count(text.begin(), text.end(), ':') > 1;
  options.master_addr = v6 ? text : text.substr(0, colon);
  if (bracketed) options.master_addr = from == std::string::npos ? "" : text.substr(1, from - 1);
  if (!v6 && colon != std::string::npos) {
    options.master_port = whole(text.substr(colon + 1), 65535);
    if (!options.master_port || *options.master_port == 0) options.master_addr.clear();
  }
  if (options.master_addr.empty())
    throw_invalid("--rdzv-endpoint is '" + shown(text) + "'; expected host 0 and a port, as 10.0.0.1:29500");
}

// What the flags were, before they are one RunOptions.
struct Given {
  std::optional<int64_t> processes, node_rank;
  std::string hosts, hostfile, endpoint, exported, tee, redirects;
  std::optional<std::string> elastic;
  std::optional<int64_t> spares, wait;
  bool standalone = false;
};

// "" is as many as there are at the start; "2:6", "2" or ":6".
void combine_elastic(const Given& given, RunOptions& options) {
  if (!given.elastic) {
    if (given.spares || given.wait)
      throw_invalid(fmt::format("{} is about a job whose workers come and go: give --elastic as well",
                                given.spares ? "--spares" : "--wait"));
    return;
  }
  if (options.keep_going)
    throw_invalid(
        "--keep-going and --elastic both say what becomes of the job when a worker is lost; give one");
  if (options.rehearse) throw_invalid("--rehearse kills workers itself; it goes without --elastic");
  if (options.nodes > 1 || !options.hosts.empty())
    throw_invalid(
        "--elastic starts the workers of one host, and these in the place of lost ones: give -n alone");
  ElasticRun elastic{.least = options.processes, .most = options.processes};
  if (const std::string& text = *given.elastic; !text.empty()) {
    const size_t colon = text.find(':');
    const auto least = whole(text.substr(0, colon), kMostProcesses),
               most = colon == std::string::npos ? options.processes
                                                 : whole(text.substr(colon + 1), kMostProcesses);
    if (!least || !most || *least < 1 || *least > options.processes || *most < options.processes)
      throw_invalid(fmt::format(
          "--elastic is '{}'; expected how few and how many workers may be there, around the {} of -n, "
          "as --elastic=1:{}",
          shown(text), options.processes, 2 * options.processes));
    elastic.least = *least, elastic.most = *most;
  }
  elastic.spares = given.spares.value_or(0);
  if (given.wait) elastic.wait = static_cast<double>(*given.wait);
  options.elastic = elastic;
}

void add_elastic(Flags& flags, Given& given) {
  flags
      .add("--elastic", given.elastic, "FEW:MANY",
           "start another worker for each that is killed or leaves (SIGTERM); the job goes on in place, with "
           "FEW "
           "at once, and takes up to MANY")
      .add("--spares", given.spares, "workers beside those of -n that wait for that (0 unless given)",
           {0, kMostProcesses})
      .add("--wait", given.wait, "seconds for a worker, where there are too few (30 unless given)",
           {1, 86400});
}

void combine(const Given& given, RunOptions& options) {
  options.processes = given.processes.value_or(1);
  options.node_rank = given.node_rank.value_or(0);
  options.tee = parse_streams("--tee", given.tee);
  options.redirects = parse_streams("--redirects", given.redirects);
  if (!given.exported.empty()) options.exported = parts_of(given.exported);
  if (options.command.empty() && !options.check)
    throw_invalid("no program given; for instance: troupe run -n 3 digits");
  options.chooses_streams = !given.tee.empty() || !given.redirects.empty();
  if (options.chooses_streams && options.log_dir.empty())
    throw_invalid("--tee and --redirects say what goes into log files; give --log-dir as well");
  if (!given.endpoint.empty()) {
    if (!options.master_addr.empty())
      throw_invalid("--rdzv-endpoint and --master-addr both say where host 0 is; give one");
    parse_endpoint(given.endpoint, options);
    if (options.nodes > 1 && !given.node_rank)
      throw_invalid(
          "--rdzv-endpoint does not number the hosts here: give --node-rank as well, 0 on the host "
          "that it names");
  }
  const bool listed = !given.hosts.empty() || !given.hostfile.empty();
  if (options.rehearse && (listed || options.nodes > 1 || options.max_restarts > 0))
    throw_invalid(
        "--rehearse is for one host, and restarts the program itself: give no other hosts, nor "
        "--max-restarts");
  if (given.standalone && (options.nodes > 1 || listed || !options.master_addr.empty()))
    throw_invalid("--standalone means this host alone; it goes with no flag for several hosts");
  if (listed) {
    if (!given.hosts.empty() && !given.hostfile.empty())
      throw_invalid("-H and --hostfile both name the hosts; give one");
    if (options.nodes > 1 || given.node_rank)
      throw_invalid(
          "-H and --hostfile start all hosts from here; --nnodes and --node-rank are for one "
          "`troupe run` on each");
    options.hosts = given.hosts.empty() ? read_hostfile(given.hostfile) : parse_hosts(given.hosts);
    bool used = !given.processes;
    for (Host& host : options.hosts) {
      used |= host.processes == 0;
      if (host.processes == 0) host.processes = options.processes;
    }
    if (!used)
      throw_invalid(
          fmt::format("every host says how many processes it has, {} in all; -n {} is for hosts that "
                      "do not",
                      options.world_size(), options.processes));
    options.nodes = static_cast<int64_t>(options.hosts.size());
    if (options.rsh.find_first_not_of(' ') == std::string::npos)
      throw_invalid("--rsh is empty; expected a program and its flags, as 'ssh -p 2222'");
    return;
  }
  if (options.node_rank >= options.nodes)
    throw_invalid(
        fmt::format("--node-rank is {}, expected less than --nnodes {}", options.node_rank, options.nodes));
  if (options.nodes > 1 && options.max_restarts > 0)
    throw_invalid(
        "--max-restarts starts all workers again, and with --nnodes this command has only those of one host; "
        "start all hosts from here with -H");
  if (options.nodes > 1 && options.master_addr.empty())
    throw_invalid(fmt::format("--nnodes {} needs --master-addr, the address of host 0", options.nodes));
}

}  // namespace

int64_t RunOptions::world_size() const {
  if (hosts.empty()) return processes * nodes + (elastic ? elastic->spares : 0);
  return std::accumulate(hosts.begin(), hosts.end(), int64_t{0},
                         [](int64_t sum, const Host& host) { return sum + host.processes; });
}

StreamPlaces RunOptions::places(int64_t local, int stream) const {
  const bool only = redirects.has(local, stream);
  return {!only, !log_dir.empty() && (!chooses_streams || only || tee.has(local, stream))};
}

std::string without_tag(const std::string& message) {
  return message.starts_with("[run] ") ? message.substr(6) : message;
}

std::optional<int> parse_run(const std::vector<std::string>& arguments, RunOptions& options,
                             std::ostream& out, std::ostream& err) {
  Given given;
  Flags flags("troupe run", "Starts a program as several workers, w0, w1, ...; w0 is the driver.");
  flags.rest("program [arguments...]", options.command,
             "what to start: a path, or a name beside `troupe` or in PATH; flags end here");
  flags
      .add("-n,--nproc-per-node", given.processes, "processes on this host, or on each (1 unless given)",
           {1, kMostProcesses})
      .add("-H,--host", given.hosts, "hosts to start them on, as a:4,b:4; w0 is on the first")
      .add("--hostfile", given.hostfile, "the same from a file: lines 'a slots=4' or 'a:4'")
      .add("--rsh", options.rsh, "what runs a command on another host, with its flags")
      .add("--export", given.exported,
           "variables for workers on other hosts, as A,B; those of Troupe go anyway")
      .add("--nnodes", options.nodes, "hosts, where `troupe run` is started once on each", {1, 65536})
      .add("--node-rank", given.node_rank, "which of them this is, from 0", {0, 65535})
      .add("--master-addr", options.master_addr, "address of host 0, for several hosts")
      .add("--master-port", options.master_port, "port on host 0 (29500 unless given; a random one with -H)",
           {1, 65535})
      .add("--rdzv-endpoint", given.endpoint, "both, as 10.0.0.1:29500")
      .add("--rdzv-id", options.id, "a name of the job, the same on all hosts: two jobs refuse each other")
      .add("--standalone", given.standalone, "this host alone, as without it")
      .add("--token-file", options.token_file, "file with the cluster's secret, mode 0600")
      .add("--grace", options.grace, "seconds to end in, before a kill", {0, 86400})
      .add("--keep-going", options.keep_going,
           "go on when a worker other than w0 fails: the driver sees it as lost, and its code is the job's")
      .add("--max-restarts", options.max_restarts,
           "start all again when one is killed or lost, so often without a checkpoint in between",
           {0, 1000000})
      .add("--control", options.control,
           "let guests call its actors: troupe repl --attach, of this user on a host of the job")
      .add("--rehearse", options.rehearse,
           "run the first 12 steps of its Job twice, with kills the second time, and name what differs")
      .add("--log-dir", options.log_dir, "also write each worker's output to DIR/w<rank>.log")
      .add("--tee", given.tee, "of it only 1 (standard output), 2 (error), 3 (both), or by worker: 0:3,1:2")
      .add("--redirects", given.redirects, "the same, and do not show it")
      .add("--prefix-all", options.prefix_all, "prefix the driver's output as well")
      .add("--dry-run", options.dry_run, "print what would be started, and start nothing")
      .add("--check", options.check, "print what is found here and on the hosts, and start nothing");
  add_elastic(flags, given);
  flags.footer(
      "The secret: --token-file, else TROUPE_TOKEN, else TROUPE_TOKEN_FILE, else a random one; with --nnodes "
      "~/.config/troupe/token.\n"
      "Exit code: the first failing worker's, 128+n for signal n; 130 after Ctrl-C; 2 for bad arguments.\n"
      "Examples:  troupe run -n 3 digits --epochs 2\n"
      "           troupe run -H 10.0.0.1:4,10.0.0.2:4 ./prog\n"
      "           troupe run -n 4 --nnodes 2 --node-rank 1 --master-addr 10.0.0.1 ./prog");
  if (auto code = flags.parse(arguments, out, err)) return code;
  try {
    combine(given, options);
    combine_elastic(given, options);
    return std::nullopt;
  } catch (const Error& e) {
    err << "troupe run: " << without_tag(e.message()) << " (see troupe run --help)\n";
    return 2;
  }
}

}  // namespace troupe::tools
