#include "troupe/launch/launch_environment.h"

#include <fmt/format.h>

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

#include "core/base/error.h"
#include "core/base/shown.h"
#include "net/address.h"
#include "net/protocol/token.h"
#include "net/socket/stream/certificate.h"

namespace troupe {
namespace {

// What a launcher calls a process's number and how many there are.
struct Dialect {
  const char *rank, *world;
  bool both = true;  // one without the other is a mistake; else it means another thing
};
// Innermost first: what mpirun starts within a Slurm job has the variables of one of Slurm's tasks, too.
constexpr Dialect kOwn{"TROUPE_RANK", "TROUPE_WORLD_SIZE"}, kTorchrun{"RANK", "WORLD_SIZE"},
    kOpenMpi{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, kPmi{"PMI_RANK", "PMI_SIZE"},
    // Of a step, which srun makes: a batch script and the shell of salloc have SLURM_PROCID and SLURM_NTASKS.
    kSlurm{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", false};
constexpr const Dialect* kDialects[] = {&kOwn, &kTorchrun, &kOpenMpi, &kPmi, &kSlurm};
constexpr uint32_t kMaxWorld = 1 << 20;

[[noreturn]] void refuse(const char* name, const std::string& text, const std::string& expected) {
  throw_invalid("[launch] " + std::string(name) + " is '" + shown(text) + "'; expected " + expected);
}

uint32_t parse(const char* name, const std::string& text, uint32_t least, uint32_t most) {
  uint32_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < least || n > most)
    refuse(name, text, "a whole number, " + std::to_string(least) + " to " + std::to_string(most));
  return n;
}

// "tcp:10.0.0.2:29500", "tcp:[::1]:0".
std::string tcp_address(const char* name, const std::string& host, const std::string& port) {
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  const std::string bare = bracketed ? host.substr(1, host.size() - 2) : host;
  in6_addr v6{};
  const bool is_v6 = inet_pton(AF_INET6, bare.substr(0, bare.find('%')).c_str(), &v6) == 1;
  if (bare.find(':') != std::string::npos ? !is_v6 : bracketed)
    refuse(name, host, "a host alone, without a port or a scheme, as 10.0.0.2, node1 or ::1");
  const std::string address = internal::net::tcp_address(is_v6 ? "[" + bare + "]" : bare, port);
  try {
    (void)internal::net::parse_address(address);
  } catch (const Error&) {
    refuse(name, host, "a host, as 10.0.0.2, node1 or ::1");
  }
  return address;
}

uint16_t parse_port(const char* name, const std::string& text) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0)
    refuse(name, text, "a port, 1 to 65535");
  return port;
}

Duration parse_seconds(const char* name, const std::string& text) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || !(seconds > 0 && seconds <= 1e6))
    refuse(name, text, "seconds, above 0 and up to 1000000");
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

bool parse_switch(const char* name, const std::optional<std::string>& text) {
  if (!text || *text == "1") return true;
  if (*text == "0") return false;
  refuse(name, *text, "0 or 1");
}

Encryption parse_encryption(const std::optional<std::string>& text) {
  if (!text || *text == "0") return Encryption::off;
  if (*text == "1") return Encryption::between_hosts;
  if (*text == "require") return Encryption::always;
  refuse("TROUPE_TLS", *text, "0, 1 or require");
}

// The secret itself is not shown.
std::string checked_token(const std::string& token) {
  if (token.size() < internal::net::kMinTokenBytes)
    throw_invalid("[launch] TROUPE_TOKEN has " + std::to_string(token.size()) + " bytes; at least " +
                  std::to_string(internal::net::kMinTokenBytes) + " are needed");
  return token;
}

std::string token_of_file(const std::string& path, bool in_pod) {
  try {
    return internal::net::read_token_file(path);
  } catch (const Error& e) {
    throw_invalid("[launch] TROUPE_TOKEN_FILE: " + e.message() +
                  (in_pod ? "; in a pod TROUPE_TOKEN may come from the Secret itself" : ""));
  }
}

using Variable = LaunchEnvironment::Lookup;

// What a launcher says of the job as a whole.
struct JobFacts {
  std::string id;  // the same for all its processes, and for no other job of this user; empty: unknown
  bool one_host = false;
  std::string host, from;  // worker 0's, and how we know
};

// "node[03,07-9],other": "node03"
std::string first_host(const std::string& list) {
  const size_t open = list.find('['), comma = list.find(',');
  if (open == std::string::npos || comma < open) return list.substr(0, comma);
  const size_t end = list.find_first_of(",-]", open);
  return end == std::string::npos ? "" : list.substr(0, open) + list.substr(open + 1, end - open - 1);
}

// "1634795520.0;tcp://192.0.2.2,10.0.0.1:35465;tcp6://...": "192.0.2.2"
std::string first_host_of_uri(const std::string& uri) {
  const size_t at = uri.find("tcp://");
  if (at == std::string::npos) return "";
  return uri.substr(at + 6, uri.find_first_of(",:;", at + 6) - at - 6);
}

// MPICH names no job. Its processes of one host have one ancestor, the proxy that started them.
std::string pid_of_mpich_proxy() {
  pid_t pid = getppid();
  for (int n = 0; n < 16 && pid > 1; ++n) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    const std::string text{std::istreambuf_iterator<char>(file), {}};  // "17 (hydra_pmi_proxy) S 16 ..."
    const size_t name = text.find('('), end = text.rfind(')');
    if (name == std::string::npos || end == std::string::npos || end + 4 > text.size()) return "";
    if (text.substr(name + 1, end - name - 1).starts_with("hydra_pmi_prox")) return std::to_string(pid);
    pid = std::atoi(text.c_str() + end + 4);
  }
  return "";
}

JobFacts facts_of(const Variable& lookup, const Dialect& dialect, const std::string& world) {
  JobFacts job;
  if (&dialect == &kSlurm) {
    const auto id = lookup("SLURM_JOB_ID"), step = lookup("SLURM_STEP_ID");
    if (id && step) job.id = "slurm-" + *id + "." + *step;
    job.one_host = lookup("SLURM_STEP_NUM_NODES") == "1";
    job.host = first_host(lookup("SLURM_STEP_NODELIST").value_or(""));
    job.from = "SLURM_STEP_NODELIST";
  } else if (&dialect == &kOpenMpi) {
    auto id = lookup("OMPI_MCA_ess_base_jobid");
    if (!id) id = lookup("PMIX_NAMESPACE");
    if (id) job.id = "ompi-" + *id;
    job.one_host = lookup("OMPI_COMM_WORLD_LOCAL_SIZE") == world;
    job.host = first_host_of_uri(lookup("OMPI_MCA_orte_hnp_uri").value_or(""));
    job.from = "OMPI_MCA_orte_hnp_uri, which says where mpirun is";
  } else if (&dialect == &kPmi) {
    job.one_host = lookup("MPI_LOCALNRANKS") == world;
    if (const auto pid = job.one_host ? pid_of_mpich_proxy() : ""; !pid.empty()) job.id = "mpich-" + pid;
  } else if (const auto id = lookup("TROUPE_JOB")) {
    job.id = *id;
  } else if (const auto run = lookup("TORCHELASTIC_RUN_ID")) {
    job.id = "torchrun-" + *run;
    // Workers of a start before this one are another job's. Agents of several hosts count for themselves.
    if (lookup("LOCAL_WORLD_SIZE") == world)
      job.id += "." + lookup("TORCHELASTIC_RESTART_COUNT").value_or("0");
  }
  return job;
}

// Of a job's number: the same for its processes, and hardly that of another job; below those that systems
// give out.
uint16_t port_of(const std::string& job) {
  uint32_t hash = 2166136261u;  // FNV-1a
  for (const unsigned char c : job) hash = (hash ^ c) * 16777619u;
  return static_cast<uint16_t>(20000 + hash % 10000);
}

// Where worker 0 is, if somebody or the launcher says it.
void find_address(LaunchEnvironment& e, const Variable& lookup, const JobFacts& job) {
  if (auto address = lookup("TROUPE_ADDRESS")) {
    try {
      (void)internal::net::parse_address(*address);
    } catch (const Error&) {
      refuse("TROUPE_ADDRESS", *address, internal::net::kAddressForms);
    }
    e.address = *address;
    return;
  }
  const auto host = lookup("MASTER_ADDR"), port = lookup("MASTER_PORT");
  if (host && port) {
    const int given = parse_port("MASTER_PORT", *port);
    e.address = tcp_address("MASTER_ADDR", *host, *port);
    if (lookup("TORCHELASTIC_USE_AGENT_STORE") == "True") {
      const std::string at = e.address.substr(0, e.address.rfind(':') + 1);
      e.address = at + std::to_string(given == 65535 ? given - 1 : given + 1);
      e.address_note = "torchrun's agent listens on MASTER_PORT (" + *port +
                       ") itself, so worker 0 takes the port beside it: set TROUPE_ADDRESS=" + at +
                       "PORT, the same for all workers, to choose another";
    }
  } else if (e.world > 1 && (host || port)) {
    throw_invalid("[launch] " + std::string(host ? "MASTER_ADDR" : "MASTER_PORT") + " is set but " +
                  (host ? "MASTER_PORT" : "MASTER_ADDR") +
                  " is not: set both, or TROUPE_ADDRESS in their place");
  } else if (job.one_host && !job.id.empty()) {
    e.address = "unix:@troupe-" + std::to_string(geteuid()) + "-" + job.id;
  } else if (!job.host.empty() && !job.id.empty()) {
    e.address = tcp_address(job.from.c_str(), job.host, std::to_string(port_of(job.id)));
    e.address_note = "the address comes from " + job.from +
                     ": set TROUPE_ADDRESS=tcp:HOST:PORT, the same for all workers, to choose another";
  }
}

void find_token(LaunchEnvironment& e, const Variable& lookup, bool in_pod) {
  if (auto token = lookup("TROUPE_TOKEN")) {
    e.token = checked_token(*token);
  } else if (auto file = lookup("TROUPE_TOKEN_FILE")) {
    e.token = token_of_file(*file, in_pod);
  } else if (in_pod && e.world > 1) {
    throw_invalid("[launch] no cluster token: set TROUPE_TOKEN, from a Secret, in the Job's template");
  } else if (auto home = lookup("HOME"); home && e.world > 1) {
    e.token = internal::net::own_token(*home);
    e.token_note =
        "This side's comes from " + internal::net::own_token_path(*home) +
        ": all workers need the same, so copy that file to the other hosts, or set TROUPE_TOKEN_FILE";
  } else if (e.world > 1) {
    throw_invalid(
        "[launch] no cluster token, and no HOME to keep one in: set TROUPE_TOKEN_FILE to a file that only "
        "you can "
        "read (head -c 32 /dev/urandom | base64 > token; chmod 600 token), the same for all workers");
  }
}

void find_certificate(LaunchEnvironment& e, const Variable& lookup) {
  constexpr const char* kNames[] = {"TROUPE_TLS_CERTIFICATE", "TROUPE_TLS_KEY", "TROUPE_TLS_CA"};
  std::string paths[3];
  const char *set = nullptr, *unset = nullptr;
  for (int i = 0; i < 3; ++i) {
    paths[i] = lookup(kNames[i]).value_or("");
    (paths[i].empty() ? unset : set) = kNames[i];
  }
  if (!set) return;
  if (unset)
    throw_invalid("[launch] " + std::string(set) + " is set but " + unset +
                  " is not: set the files of certificate, key and authority, or none");
  if (e.encryption == Encryption::off)
    throw_invalid("[launch] " + std::string(set) +
                  " is set, but without TROUPE_TLS no link is encrypted: set TROUPE_TLS to 1 or require");
  try {
    e.certificate = internal::net::read_certificate({paths[0], paths[1], paths[2]});
  } catch (const Error& error) {
    throw_invalid("[launch] " + error.message());
  }
}

// A launcher that started this process may well have been started by another one. Numbers that somebody set
// by hand are another matter: then all of its processes may have the same one.
void check_contradiction(const Variable& lookup, const Dialect& said, const std::string& rank,
                         const std::string& world) {
  if ((&said != &kOwn && &said != &kTorchrun) || lookup("LOCAL_RANK")) return;
  for (const Dialect* d : {&kOpenMpi, &kPmi, &kSlurm}) {
    const auto other = lookup(d->rank), size = lookup(d->world);
    if (!other || !size || *size != world || *other == rank) continue;
    throw_invalid("[launch] " + std::string(said.rank) + " is " + shown(rank) + " and " + d->rank + " is " +
                  shown(*other) + ", each of " + world + ": unset " + said.rank + " and " + said.world +
                  " to follow the launcher");
  }
}

std::optional<std::string> from_process(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

}  // namespace

std::optional<LaunchEnvironment> LaunchEnvironment::read(const Variable& lookup) {
  LaunchEnvironment e;  // a wrong switch is refused in a program that runs alone, too
  e.polling = parse_switch("TROUPE_POLLING", lookup("TROUPE_POLLING"));
  e.callers_read = parse_switch("TROUPE_CALLERS_READ", lookup("TROUPE_CALLERS_READ"));
  e.shared_memory = parse_switch("TROUPE_SHARED_MEMORY", lookup("TROUPE_SHARED_MEMORY"));
  e.control = parse_switch("TROUPE_CONTROL", lookup("TROUPE_CONTROL").value_or("0"));
  e.encryption = parse_encryption(lookup("TROUPE_TLS"));
  if (const auto elastic = lookup("TROUPE_ELASTIC")) e.elastic = ElasticJob::parse(*elastic);
  for (const Dialect* dialect : kDialects) {
    std::string rank_name = dialect->rank;
    const std::string world_name = dialect->world;
    auto rank = lookup(rank_name);
    const auto world = lookup(world_name);
    // A pod of an indexed Job has its number; how many there are, the Job's author writes down.
    const bool in_pod = dialect == &kTorchrun && !rank && world && lookup("JOB_COMPLETION_INDEX");
    if (in_pod) rank = lookup(rank_name = "JOB_COMPLETION_INDEX");
    if (!rank && !world) continue;
    if (!rank || !world) {
      if (!dialect->both) continue;
      throw_invalid("[launch] " + (rank ? rank_name : world_name) + " is set but " +
                    (rank ? world_name : rank_name) +
                    " is not, or is empty: set both, or neither to run alone");
    }
    // srun offers PMI's variables as well, and says more in its own.
    if (dialect == &kPmi && lookup(kSlurm.rank) == rank && lookup(kSlurm.world) == world) continue;
    e.source = rank_name;
    e.rank = parse(rank_name.c_str(), *rank, 0, kMaxWorld - 1);
    e.world = parse(world_name.c_str(), *world, 1, kMaxWorld);
    if (e.rank >= e.world)
      throw_invalid("[launch] " + rank_name + "=" + *rank + " is not below " + world_name + "=" + *world);
    // One process, without anything of ours: as if started by hand.
    if (e.world == 1 && dialect != &kOwn && !lookup("TROUPE_ADDRESS")) return std::nullopt;
    check_contradiction(lookup, *dialect, *rank, *world);
    const JobFacts job = facts_of(lookup, *dialect, *world);
    e.job = job.id;
    find_address(e, lookup, job);
    if (e.world > 1 && e.address.empty())
      throw_invalid(
          "[launch] " + rank_name +
          " is set, but not where worker 0 is: set TROUPE_ADDRESS=tcp:HOST:PORT, or MASTER_ADDR and "
          "MASTER_PORT, the same for all workers" +
          (in_pod ? ", in the Job's template" : ""));
    find_token(e, lookup, in_pod);
    find_certificate(e, lookup);
    if (auto bind = lookup("TROUPE_BIND")) {
      (void)tcp_address("TROUPE_BIND", *bind, "0");
      e.bind = *bind;
    }
    if (auto seconds = lookup("TROUPE_JOIN_TIMEOUT"))
      e.join_timeout = parse_seconds("TROUPE_JOIN_TIMEOUT", *seconds);
    return e;
  }
  return std::nullopt;
}

ElasticJob ElasticJob::parse(const std::string& text) {
  constexpr const char* kName = "TROUPE_ELASTIC";
  std::vector<std::string> parts;
  for (size_t from = 0; from <= text.size();) {
    const size_t to = std::min(text.find(':', from), text.size());
    parts.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  if (parts.size() != 4) refuse(kName, text, "LEAST:MOST:START:WAIT, as 2:6:4:30");
  ElasticJob job;
  job.least = troupe::parse(kName, parts[0], 1, kMaxWorld);
  job.most = troupe::parse(kName, parts[1], static_cast<uint32_t>(job.least), kMaxWorld);
  job.start = troupe::parse(kName, parts[2], 1, kMaxWorld);
  job.wait = parse_seconds(kName, parts[3]);
  return job;
}

std::string ElasticJob::text() const {
  return fmt::format("{}:{}:{}:{}", least, most, start, std::chrono::duration<double>(wait).count());
}

std::string LaunchEnvironment::bind_address() const { return tcp_address("TROUPE_BIND", bind, "0"); }

std::string LaunchEnvironment::why_alone(const Variable& lookup) {
  if (const auto pod = lookup("JOB_COMPLETION_INDEX"); pod && !lookup("WORLD_SIZE"))
    return "[launch] runs alone: this is pod " + shown(*pod) +
           " of an indexed Job, and each pod trains a model of its own; for one cluster set WORLD_SIZE (the "
           "Job's "
           "completions), MASTER_ADDR (the first pod's name), MASTER_PORT and TROUPE_TOKEN in its template";
  if (const auto tasks = lookup("SLURM_NTASKS");
      tasks && *tasks != "1" && !lookup(kSlurm.world) && !lookup(kOpenMpi.world) && !lookup(kPmi.world))
    return "[launch] runs alone: Slurm has room for " + shown(*tasks) +
           " tasks, and srun starts one worker in each";
  return "";
}
std::string LaunchEnvironment::why_alone() { return why_alone(from_process); }

std::optional<LaunchEnvironment> LaunchEnvironment::read() { return read(from_process); }

int LaunchEnvironment::workers(const Variable& lookup) {
  const auto text = lookup("TROUPE_WORKERS");
  if (!text) return 3;
  return static_cast<int>(parse("TROUPE_WORKERS", *text, 1, 1024));
}

std::string LaunchEnvironment::attach() { return from_process("TROUPE_ATTACH").value_or(""); }

LeakCheck LaunchEnvironment::leak_check() {
  const std::string value = from_process("TROUPE_LEAK_CHECK").value_or("warn");
  if (value == "warn") return LeakCheck::warn;
  if (value == "off") return LeakCheck::off;
  if (value == "error") return LeakCheck::error;
  refuse("TROUPE_LEAK_CHECK", value, "off, warn or error");
}

int LaunchEnvironment::workers() { return workers(from_process); }

}  // namespace troupe
