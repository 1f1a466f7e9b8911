// Rank, address and secret of every worker.
#include "tools/launch/job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/random_bytes.h"
#include "net/address.h"
#include "net/protocol/token.h"
#include "troupe/checkpoint/rehearsal.h"

namespace troupe::tools {
namespace fs = std::filesystem;
namespace {

std::string value_of(const Getenv& env, const char* name) {
  const char* value = env(name);
  return value ? value : "";
}

void choose_token(Job& job, const RunOptions& options, const Getenv& env) {
  const auto from_file = [&](const std::string& file) {
    job.token = internal::net::read_token_file(file);
    job.secret_from = file;
  };
  if (!options.token_file.empty()) return from_file(options.token_file);
  if (auto token = value_of(env, "TROUPE_TOKEN"); !token.empty()) {
    if (token.size() < internal::net::kMinTokenBytes)
      throw_invalid(fmt::format("[run] TROUPE_TOKEN has {} bytes, expected at least {}", token.size(),
                                internal::net::kMinTokenBytes));
    job.token = token;
    job.secret_from = "TROUPE_TOKEN";
    return;
  }
  if (auto file = value_of(env, "TROUPE_TOKEN_FILE"); !file.empty()) {
    try {
      return from_file(file);
    } catch (const Error& e) {
      throw_invalid("[run] TROUPE_TOKEN_FILE: " + e.message());
    }
  }
  const bool joined_from_outside = options.elastic && !options.master_addr.empty();
  if ((options.nodes <= 1 || !options.hosts.empty()) && !joined_from_outside) {
    job.token = internal::random_hex(32);
    job.secret_from = "made for this job";
    return;
  }
  const auto home = value_of(env, "HOME");
  if (home.empty())
    throw_invalid(
        "[run] workers that are started apart need one secret, and there is no HOME to keep one in: give "
        "--token-file");
  job.token = internal::net::own_token(home);
  job.secret_from = internal::net::own_token_path(home);
}

// Where w0 listens for workers that -H starts: by its host's name, as long as others know it by that.
std::string first_host(const RunOptions& options) {
  const auto elsewhere = std::find_if_not(options.hosts.begin(), options.hosts.end(), is_this_host);
  if (elsewhere == options.hosts.end()) return "";
  const std::string first = options.hosts[0].address();
  if (is_this_host(options.hosts[0]) && (first == "localhost" || first == "::1" || first.starts_with("127.")))
    throw_invalid(
        fmt::format("[run] the first host is {}, where {} does not find it: name it as the others do, "
                    "or give --master-addr",
                    first, elsewhere->address()));
  return first;
}

bool runnable(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && access(path.c_str(), X_OK) == 0;
}

}  // namespace

std::string shell_quoted(const std::string& text) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string find_program(const std::string& name, const std::string& beside, const std::string& path) {
  if (name.find('/') != std::string::npos) {
    if (runnable(name)) return name;
    std::error_code ignored;
    if (!fs::exists(name, ignored)) throw_invalid(fmt::format("[run] no program at {}; is it built?", name));
    throw_invalid(
        fmt::format("[run] {} cannot be executed; expected a program (chmod +x makes a script one)", name));
  }
  if (runnable(fs::path(beside) / name)) return fs::path(beside) / name;
  for (size_t from = 0; from < path.size();) {
    const size_t to = std::min(path.find(':', from), path.size());
    const auto candidate = fs::path(path.substr(from, to - from)) / name;
    if (to > from && runnable(candidate)) return candidate;
    from = to + 1;
  }
  std::string hint = "give its path";
  std::vector<std::string> known;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(beside, ignored))
    if (runnable(entry.path())) known.push_back(entry.path().filename());
  if (runnable(fs::path(".") / name))
    hint = fmt::format("did you mean ./{}?", name);
  else if (const auto near = nearest(name, known); !near.empty())
    hint = fmt::format("did you mean {}?", near);
  throw_invalid(fmt::format("[run] no program '{}' beside troupe ({}) or in PATH; {}", name, beside, hint));
}

Job make_job(const RunOptions& options, const Getenv& env, int64_t restart) {
  Job job;
  job.restart = restart;
  std::error_code ignored;
  const auto self = fs::read_symlink("/proc/self/exe", ignored);
  if (options.hosts.empty() && !options.command.empty())
    job.program = find_program(options.command[0], self.parent_path(), value_of(env, "PATH"));
  choose_token(job, options, env);
  job.id = options.id;
  // No message passes between launchers, so the id comes from what they share. The hosts may know host 0 by
  // several names.
  job.port = options.master_port.value_or(29500);
  if (job.id.empty() && options.nodes > 1 && options.hosts.empty()) job.id = fmt::format("port-{}", job.port);
  if (job.id.empty()) job.id = internal::random_hex(8);
  if (restart > 0) job.id += fmt::format("-restart-{}", restart);
  job.master_addr = options.master_addr;
  if (!options.hosts.empty() && job.master_addr.empty()) job.master_addr = first_host(options);
  // Several jobs may have w0 on one host; below the ports that systems give out.
  if (!options.hosts.empty() && !options.master_port)
    job.port = 20000 + std::stol(internal::random_hex(3), nullptr, 16) % 10000;
  auto host = job.master_addr;
  if (host.find(':') != std::string::npos && host[0] != '[') host = "[" + host + "]";  // IPv6
  job.address = host.empty() ? internal::net::abstract_address(
                                   "troupe-" + (options.id.empty() ? job.id : internal::random_hex(8)))
                             : internal::net::tcp_address(host, std::to_string(job.port));
  return job;
}

Share share_of(const RunOptions& options, int64_t node) {
  if (options.hosts.empty())
    return {node, node * options.processes,
            options.processes + (options.elastic ? options.elastic->spares : 0)};
  Share share{node, 0, options.hosts[size_t(node)].processes};
  for (int64_t before = 0; before < node; ++before) share.first += options.hosts[size_t(before)].processes;
  return share;
}

Variables common_variables(const RunOptions& options, const Job& job, const Share& share) {
  auto text = [](int64_t n) { return std::to_string(n); };
  Variables all{{"WORLD_SIZE", text(options.world_size())},
                {"LOCAL_WORLD_SIZE", text(share.processes)},
                {"GROUP_RANK", text(share.node)},
                {"MASTER_ADDR", job.master_addr.empty() ? "127.0.0.1" : job.master_addr},
                {"MASTER_PORT", text(job.port)},
                {"TROUPE_ADDRESS", job.address},
                {"TROUPE_JOB", job.id},
                {"TROUPE_TOKEN", job.token},
                {"TROUPE_RESTART", text(job.restart)}};
  if (const auto& e = options.elastic)
    all.emplace_back("TROUPE_ELASTIC",
                     fmt::format("{}:{}:{}:{}", e->least, e->most, options.processes, e->wait));
  if (options.control) all.emplace_back("TROUPE_CONTROL", "1");
  if (!options.rehearsal.empty()) all.emplace_back(internal::Rehearsal::kVariable, options.rehearsal);
  return all;
}

Variables numbers_of(int64_t rank, int64_t local) {
  return {{"RANK", std::to_string(rank)}, {"LOCAL_RANK", std::to_string(local)}};
}

Variables variables_of(const RunOptions& options, const Job& job, const Share& share, int64_t local) {
  auto all = numbers_of(share.first + local, local);
  auto common = common_variables(options, job, share);
  if (local >= share.processes)  // it comes later
    for (auto& [name, value] : common)
      if (name == "WORLD_SIZE") value = std::to_string(share.first + local + 1);
  all.insert(all.begin() + 1, common.begin(), common.end());
  return all;
}

std::string dry_run_line(const RunOptions& options, const Job& job, const Share& share, int64_t local) {
  std::string line;
  for (const auto& [name, value] : variables_of(options, job, share, local))
    line += name + "=" + (name == "TROUPE_TOKEN" ? "..." : shell_quoted(value)) + " ";
  line += shell_quoted(job.program.empty() ? options.command.at(0) : job.program);
  for (size_t i = 1; i < options.command.size(); ++i) line += " " + shell_quoted(options.command[i]);
  return line;
}

}  // namespace troupe::tools
