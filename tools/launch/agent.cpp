// The far half decides nothing: output, ends and words of workers go to the launcher, which judges them as
// those of its own host. Standard input is the lifeline.
#include "tools/launch/agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <optional>
#include <tuple>

#include "core/base/error.h"
#include "core/base/thread.h"
#include "net/rendezvous.h"
#include "tools/flags/flags.h"
#include "tools/launch/assignment.h"
#include "tools/launch/output.h"
#include "tools/launch/worker_group.h"

namespace troupe::tools {
namespace {

constexpr size_t kMostAssigned = size_t{64} << 20;
constexpr double kOrphaned = 2;  // seconds to end in, at most, once the launcher has gone

// False: the launcher has gone. Remote shells may hand down a descriptor that does not block.
bool read_whole(char* to, size_t size) {
  while (size > 0) {
    const ssize_t got = read(STDIN_FILENO, to, size);
    if (got > 0) {
      to += got;
      size -= size_t(got);
    } else if (got < 0 && errno == EAGAIN) {
      pollfd in{STDIN_FILENO, POLLIN, 0};
      poll(&in, 1, -1);
    } else if (got == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

class Agent {
 public:
  explicit Agent(Assignment assignment) : assignment_(std::move(assignment)) {}
  void run();
  void say(AgentFrame::Kind kind, uint32_t local, std::string_view bytes) {
    out_.add(AgentFrame{kind, local, bytes}.encode());
  }
  void flush() { out_.flush(); }

 private:
  struct StartedWorker {
    pid_t pid = 0;
    bool running = true;
    Descriptor pipes[2];
  };
  void start(uint32_t local);
  void step();
  void hear_launcher();
  void hear_workers();
  void forward(uint32_t local, int stream, size_t most);
  void on_ended(pid_t pid, int status);
  void orphaned();

  const Assignment assignment_;
  std::string program_;
  OutputSink out_{STDOUT_FILENO};
  WorkerGroup group_;
  std::vector<StartedWorker> workers_;
  Descriptor workers_say_, word_;  // both ends of the pipe of net/rendezvous.h
  bool alone_ = false;             // the launcher has gone
  std::optional<std::chrono::steady_clock::time_point> deadline_;
};

void Agent::run() {
  if (chdir(assignment_.folder.c_str()) != 0)
    throw_invalid(fmt::format("[run] there is no folder {} to start in, as on the launcher's host ({})",
                              assignment_.folder, std::strerror(errno)));
  std::error_code ignored;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const char* path = std::getenv("PATH");
  if (!assignment_.command.empty())
    program_ = find_program(assignment_.command[0], self.parent_path(), path ? path : "");
  if (assignment_.check)
    return say(AgentFrame::found, 0,
               fmt::format("troupe {}, {} cores{}", version(), usable_cores(),
                           program_.empty() ? "" : ", " + program_));
  group_.open({SIGINT, SIGTERM, SIGQUIT});
  std::tie(workers_say_, word_) = make_pipe();
  for (uint32_t local = 0; local < assignment_.count; ++local) start(local);
  word_.reset();
  const auto running = [&] {
    return std::any_of(workers_.begin(), workers_.end(), [](const StartedWorker& w) { return w.running; });
  };
  // The group lives as long as the job, as on the launcher's own host.
  while (!alone_ || running()) step();
  group_.sweep();
  for (uint32_t local = 0; local < workers_.size(); ++local)
    for (int stream : {0, 1}) forward(local, stream, size_t{2} << 20);  // more than a pipe holds
}

void Agent::start(uint32_t local) {
  Variables variables = assignment_.variables;
  for (auto& number : numbers_of(assignment_.first + local, local)) variables.push_back(std::move(number));
  variables.emplace_back(internal::net::kRendezvousVariable, internal::net::text_of_pipe(word_.get()));
  Start start{
      .arguments = assignment_.command,
      .environment = environment_with(variables, {"TROUPE_TOKEN_FILE", internal::net::kRendezvousVariable}),
      .in = group_.nothing(),
      .keep = word_.get()};
  start.arguments[0] = program_;
  StartedWorker worker;
  Descriptor ends[2];
  for (int stream : {0, 1}) std::tie(worker.pipes[stream], ends[stream]) = make_pipe();
  start.out = ends[0].get();
  start.err = ends[1].get();
  worker.pid = group_.start(start);
  say(AgentFrame::started, local, std::to_string(worker.pid));
  workers_.push_back(std::move(worker));
}

void Agent::step() {
  std::vector<pollfd> polled{{group_.signals(), POLLIN, 0},
                             {alone_ ? -1 : STDIN_FILENO, POLLIN, 0},
                             {out_.pending().empty() ? -1 : STDOUT_FILENO, POLLOUT, 0},
                             {workers_say_.get(), POLLIN, 0}};
  for (const auto& worker : workers_)
    for (const auto& pipe : worker.pipes) polled.push_back({out_.full() ? -1 : pipe.get(), POLLIN, 0});
  int timeout = -1;
  if (deadline_) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - std::chrono::steady_clock::now());
    timeout = int(std::clamp<int64_t>(left.count(), 0, 3600 * 1000));
  }
  if (poll(polled.data(), polled.size(), timeout) < 0 && errno != EINTR)
    throw_error(ErrorKind::failed, fmt::format("[run] poll: {}", std::strerror(errno)));
  if (polled[2].revents) out_.write_some();
  if (out_.failure()) orphaned();
  signalfd_siginfo info;
  while (group_.next_signal(info)) {
    if (info.ssi_signo == SIGHUP)
      orphaned();
    else if (info.ssi_signo != SIGCHLD)  // the launcher decides what comes of it, on all hosts
      say(AgentFrame::asked, 0, std::to_string(info.ssi_signo));
    group_.reap([&](pid_t pid, int status) { on_ended(pid, status); });
  }
  if (polled[1].revents) hear_launcher();
  if (polled[3].revents) hear_workers();
  for (size_t i = 4; i < polled.size(); ++i)
    if (polled[i].revents) forward(uint32_t(i - 4) / 2, int(i % 2), 64 << 10);
  if (deadline_ && std::chrono::steady_clock::now() >= *deadline_) {
    deadline_.reset();
    group_.signal_all(SIGKILL);
  }
}

// Once: whoever told us to start workers is not there any more, or does not want us.
void Agent::orphaned() {
  if (std::exchange(alone_, true)) return;
  group_.signal_all(SIGTERM);
  group_.signal_all(SIGCONT);  // a stopped worker can end only once it runs again
  deadline_ = std::chrono::steady_clock::now() +
              std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                  std::chrono::duration<double>(std::min(assignment_.grace, kOrphaned)));
}

void Agent::hear_launcher() {
  char signals[64];
  const ssize_t got = read(STDIN_FILENO, signals, sizeof signals);
  if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) return orphaned();
  for (ssize_t i = 0; i < got; ++i) group_.signal_all(signals[i]);
}

void Agent::hear_workers() {
  char words[64];
  ssize_t got;
  while ((got = read(workers_say_.get(), words, sizeof words)) > 0)
    say(AgentFrame::rendezvous, 0, {words, size_t(got)});
  if (got == 0) workers_say_.reset();
}

void Agent::forward(uint32_t local, int stream, size_t most) {
  Descriptor& pipe = workers_[local].pipes[stream];
  char bytes[64 << 10];
  while (pipe && most > 0) {
    const ssize_t got = read(pipe.get(), bytes, std::min(most, sizeof bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return pipe.reset();
    most -= size_t(got);
    say(stream ? AgentFrame::errors : AgentFrame::output, local, {bytes, size_t(got)});
  }
}

void Agent::on_ended(pid_t pid, int status) {
  for (uint32_t local = 0; local < workers_.size(); ++local) {
    StartedWorker& worker = workers_[local];
    if (!worker.running || worker.pid != pid) continue;
    worker.running = false;
    for (int stream : {0, 1}) forward(local, stream, size_t{2} << 20);  // its last words come first
    hear_workers();
    say(AgentFrame::ended, local, std::to_string(status));
  }
}

}  // namespace

int agent_main() {
  signal(SIGPIPE, SIG_IGN);
  std::cout << "\n"
            << agent_hello() << std::endl;  // on a line of its own, whatever a login shell has printed
  std::string length(4, '\0');
  if (!read_whole(length.data(), length.size())) return 1;
  std::string bytes(std::min<size_t>(decode_length(length.data()), kMostAssigned), '\0');
  if (!read_whole(bytes.data(), bytes.size())) return 1;
  std::optional<Agent> agent;
  int code = 0;
  try {
    agent.emplace(Assignment::decode(bytes));
    agent->run();
    agent->flush();
  } catch (const Error& e) {
    const bool mended = e.kind() == ErrorKind::invalid;
    const std::string text = (mended ? "i" : "f") + without_tag(e.message());
    if (agent) agent->flush();  // a frame may be half written
    OutputSink out(STDOUT_FILENO);
    out.add(AgentFrame{AgentFrame::refused, 0, text}.encode());
    out.flush();
    code = mended ? 2 : 1;
  }
  return code;
}

}  // namespace troupe::tools
