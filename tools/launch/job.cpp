// Rank, address and secret of every worker.
#include "tools/launch/job.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/base/error.h"
#include "net/address.h"
#include "net/protocol/token.h"

namespace troupe::tools {
namespace fs = std::filesystem;
namespace {

std::string random_hex(size_t bytes) {
  std::string raw(bytes, '\0'), text;
  for (size_t done = 0; done < bytes;) {
    const ssize_t got = getrandom(raw.data() + done, bytes - done, 0);
    if (got < 0 && errno != EINTR)
      throw_error(ErrorKind::failed, fmt::format("[run] no random numbers: {}", std::strerror(errno)));
    if (got > 0) done += size_t(got);
  }
  for (unsigned char c : raw) text += fmt::format("{:02x}", c);
  return text;
}

std::string value_of(const Getenv& env, const char* name) {
  const char* value = env(name);
  return value ? value : "";
}

std::string choose_token(const RunOptions& options, const Getenv& env) {
  if (!options.token_file.empty()) return internal::net::read_token_file(options.token_file);
  if (auto token = value_of(env, "TROUPE_TOKEN"); !token.empty()) {
    if (token.size() < internal::net::kMinTokenBytes)
      throw_invalid(fmt::format("[run] TROUPE_TOKEN has {} bytes, expected at least {}", token.size(),
                                internal::net::kMinTokenBytes));
    return token;
  }
  if (auto file = value_of(env, "TROUPE_TOKEN_FILE"); !file.empty()) {
    try {
      return internal::net::read_token_file(file);
    } catch (const Error& e) {
      throw_invalid("[run] TROUPE_TOKEN_FILE: " + e.message());
    }
  }
  if (options.nodes <= 1) return random_hex(32);
  if (const auto home = value_of(env, "HOME"); !home.empty()) return internal::net::own_token(home);
  throw_invalid(
      "[run] several hosts need one secret, and there is no HOME to keep one in: give --token-file");
}

bool runnable(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && access(path.c_str(), X_OK) == 0;
}

std::string shell_quoted(const std::string& text) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

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

Job make_job(const RunOptions& options, const Getenv& env) {
  Job job;
  std::error_code ignored;
  const auto self = fs::read_symlink("/proc/self/exe", ignored);
  job.program = find_program(options.command.at(0), self.parent_path(), value_of(env, "PATH"));
  job.token = choose_token(options, env);
  auto host = options.master_addr;
  if (host.find(':') != std::string::npos && host[0] != '[') host = "[" + host + "]";  // IPv6
  if (options.nodes > 1) {
    // No message passes between launchers, so the id comes from what they share. The hosts may know host 0 by
    // several names.
    job.id = fmt::format("port-{}", options.master_port);
  } else {
    job.id = random_hex(8);
  }
  job.address = host.empty() ? internal::net::abstract_address("troupe-" + job.id)
                             : internal::net::tcp_address(host, std::to_string(options.master_port));
  return job;
}

Variables variables_of(const RunOptions& options, const Job& job, int64_t local) {
  auto text = [](int64_t n) { return std::to_string(n); };
  return {{"RANK", text(rank_of(options, local))},
          {"WORLD_SIZE", text(options.world_size())},
          {"LOCAL_RANK", text(local)},
          {"LOCAL_WORLD_SIZE", text(options.processes)},
          {"GROUP_RANK", text(options.node_rank)},
          {"MASTER_ADDR", options.master_addr.empty() ? "127.0.0.1" : options.master_addr},
          {"MASTER_PORT", text(options.master_port)},
          {"TROUPE_ADDRESS", job.address},
          {"TROUPE_JOB", job.id},
          {"TROUPE_TOKEN", job.token}};
}

std::string dry_run_line(const RunOptions& options, const Job& job, int64_t local) {
  std::string line;
  for (const auto& [name, value] : variables_of(options, job, local))
    line += name + "=" + (name == "TROUPE_TOKEN" ? "..." : shell_quoted(value)) + " ";
  line += shell_quoted(job.program);
  for (size_t i = 1; i < options.command.size(); ++i) line += " " + shell_quoted(options.command[i]);
  return line;
}

}  // namespace troupe::tools
