// The assignment, with the secret, goes to an agent of our own version, and to nobody else.
#include "tools/launch/remote_host.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "core/base/error.h"
#include "core/base/shown.h"
#include "tools/launch/ending.h"

namespace troupe::tools {
namespace {

constexpr size_t kMostChatter = 64 << 10;  // in a line

std::string own_path() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored);
}

bool is_ssh(const std::string& program) { return program.substr(program.rfind('/') + 1) == "ssh"; }

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

Assignment assignment_of(const RunOptions& options, const Job& job, const Share& share) {
  Assignment a{.folder = std::filesystem::current_path(),
               .command = options.command,
               .first = share.first,
               .count = share.processes,
               .variables = variables_to_send(options.exported),
               .grace = options.grace,
               .check = options.check};
  for (auto& variable : common_variables(options, job, share)) a.variables.push_back(std::move(variable));
  return a;
}

}  // namespace

std::vector<std::string> agent_command(const std::string& rsh, const Host& host) {
  if (is_this_host(host)) return {own_path(), "run", kAgentFlag};
  auto command = words_of(rsh);
  // Nobody is there to type a password; and a host that does not answer, or not any more, is named in time.
  if (is_ssh(command.at(0)))
    for (const char* flag : {"-T", "-oBatchMode=yes", "-oConnectTimeout=15", "-oServerAliveInterval=10"})
      command.push_back(flag);
  command.push_back(host.name);
  const std::string path = shell_quoted(own_path()), rest = fmt::format(" run {}", kAgentFlag);
  command.push_back("exec /bin/sh -c " +
                    shell_quoted("test -x " + path + " && exec " + path + rest + "; exec troupe" + rest));
  return command;
}

Variables variables_to_send(const std::vector<std::string>& exported) {
  static const std::vector<std::string> kOfOne = {
      "TROUPE_RANK", "TROUPE_WORLD_SIZE", "TROUPE_ADDRESS", "TROUPE_TOKEN",   "TROUPE_TOKEN_FILE",
      "TROUPE_BIND", "TROUPE_JOB",        "TROUPE_RESTART", "TROUPE_WORKERS", "TROUPE_LAUNCHER_PIPE"};
  Variables all;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    if (equals != std::string::npos && name.starts_with("TROUPE_") &&
        std::find(kOfOne.begin(), kOfOne.end(), name) == kOfOne.end())
      all.emplace_back(name, text.substr(equals + 1));
  }
  for (const auto& name : exported) {
    const char* value = std::getenv(name.c_str());
    if (!value)
      throw_invalid("[run] --export names '" + shown(name) +
                    "', which is not set here; expected names of variables, as A,B");
    all.emplace_back(name, value);
  }
  return all;
}

RemoteHost::RemoteHost(const RunOptions& options, const Job& job, const Share& share, OutputSink& errors)
    : host_(options.hosts.at(size_t(share.node))),
      share_(share),
      rsh_(options.rsh),
      assignment_(assignment_of(options, job, share).encode()),
      errors_(errors) {}

void RemoteHost::start(const WorkerGroup& group) {
  auto [far_input, input] = make_pipe();
  auto [output, far_output] = make_pipe();
  auto [chatter, far_chatter] = make_pipe();
  fcntl(far_input.get(), F_SETFL, 0);  // what a remote shell expects
  Start start{.arguments = agent_command(rsh_, host_), .environment = environment_with({}, {"TROUPE_TOKEN"})};
  if (start.arguments[0].find('/') == std::string::npos) {
    const char* path = std::getenv("PATH");
    start.arguments[0] = find_program(start.arguments[0], "", path ? path : "");
  }
  start.in = far_input.get();
  start.out = far_output.get();
  start.err = far_chatter.get();
  // Batch systems tell every process; ssh leads to the workers until they have ended. Our own agent tells us.
  start.stays = !is_this_host(host_);
  pid_ = group.start(start);
  input_ = std::move(input);
  output_ = std::move(output);
  words_ = OutputSink(input_.get());
  chatter_ =
      std::make_unique<OutputStream>(std::move(chatter), &errors_, "[" + host_.name + "] ", -1, errors_);
}

void RemoteHost::write_some() {
  if (!input_) return;
  words_.write_some();
  if (words_.failure()) input_.reset();  // it is about to end
}

void RemoteHost::send_signal(int number) {
  if (input_ && answers_) words_.add(std::string(1, static_cast<char>(number)));
}

void RemoteHost::read_some(size_t limit, const std::function<void(const AgentFrame&)>& take) {
  char bytes[64 << 10];
  while (output_ && limit > 0) {
    const ssize_t got = read(output_.get(), bytes, std::min(limit, sizeof bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return output_.reset();
    limit -= size_t(got);
    std::string_view rest(bytes, size_t(got));
    if (!answers_ && wrong_.empty()) {
      begin_ += rest;
      for (size_t end; !answers_ && wrong_.empty() && (end = begin_.find('\n')) != std::string::npos;) {
        greet(std::string_view(begin_).substr(0, end));
        begin_.erase(0, end + 1);
      }
      rest = begin_;
      if (!answers_ && begin_.size() > kMostChatter) wrong_ = "what answers there is no troupe run";
    }
    if (answers_ && wrong_.empty() && !frames_.feed(rest, take))
      wrong_ = "what came from there is no output of troupe run";
    if (answers_ && wrong_.empty()) begin_.clear();
    if (wrong_.empty()) continue;
    output_.reset();
    input_.reset();
    kill(pid_, SIGKILL);
  }
}

// A login shell may print lines of its own before.
void RemoteHost::greet(std::string_view line) {
  if (line.empty()) return;
  if (!line.starts_with(kAgentGreeting)) return chatter_->take(std::string(line) + "\n");
  if (line != agent_hello()) {
    wrong_ = fmt::format("it has {}, and this host {}: install the same version on both", shown(line),
                         agent_hello());
    return;
  }
  answers_ = true;
  words_.add(encode_length(assignment_.size()) + assignment_);
  assignment_.clear();
}

std::string RemoteHost::on_ended(int status) {
  const std::string shell = is_this_host(host_) ? "its troupe run" : words_of(rsh_).at(0);
  const Ending ending{0, pid_, status};
  chatter_->finish();
  pid_ = 0;
  input_.reset();
  output_.reset();
  if (!wrong_.empty()) return wrong_;
  const std::string how = WIFSIGNALED(status) ? fmt::format("was killed by signal {}", WTERMSIG(status))
                                              : fmt::format("ended with code {}", ending.exit_code());
  if (answers_) return fmt::format("{} {}", shell, how);
  if (ending.exit_code() == 127)
    return "no troupe there, neither at " + own_path() +
           " nor in the PATH of a remote shell: install this version there";
  if (is_ssh(shell) && ending.exit_code() == 255)
    return fmt::format(
        "ssh did not get in; it has to reach the host, without a password and with a host key that it knows: "
        "try {} -oBatchMode=yes {} true",
        rsh_, host_.name);
  return fmt::format("{} {} before troupe answered there", shell, how);
}

}  // namespace troupe::tools
