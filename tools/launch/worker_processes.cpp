#include "tools/launch/worker_processes.h"

#include <fcntl.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>

#include "core/base/error.h"
#include "core/base/thread.h"
#include "tools/launch/job.h"
#include "tools/launch/process.h"

namespace troupe::tools {

std::optional<Ending> WorkerProcesses::take_ended() {
  for (Ending& child : running_) {
    if (waitpid(child.pid, &child.status, WNOHANG) != child.pid) continue;
    const Ending ended = child;
    std::erase_if(running_, [&](const Ending& c) { return c.pid == ended.pid; });
    return ended;
  }
  return {};
}

void WorkerProcesses::ask_to_end() {
  for (const Ending& child : running_) kill(child.pid, SIGTERM);
}

void WorkerProcesses::end() {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  while (!running_.empty()) {
    std::erase_if(running_, [](const Ending& c) { return waitpid(c.pid, nullptr, WNOHANG) != 0; });
    if (running_.empty()) break;
    if (std::chrono::steady_clock::now() > give_up)
      for (const Ending& child : running_) kill(child.pid, SIGKILL);
    // The pause, as waitpid has no deadline, spares the processor
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

StartedWorkers start_workers(int64_t workers, const std::string& program,
                             const std::vector<std::string>& arguments) {
  RunOptions run;
  run.processes = workers;
  run.command = {program};
  const Job job = make_job(run, [](const char* name) { return std::getenv(name); });
  const Share share = share_of(run, 0);
  const Descriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  WorkerProcesses processes;
  for (int64_t local = 1; local < workers; ++local) {
    Start start;
    start.arguments = {job.program};
    start.arguments.insert(start.arguments.end(), arguments.begin(), arguments.end());
    start.environment = environment_with(variables_of(run, job, share, local), {});
    start.group = processes.group();  // of their own
    start.in = nothing.get();
    processes.add(local, start_process(start));
  }
  LaunchEnvironment environment =
      *LaunchEnvironment::read([&](const std::string& name) -> std::optional<std::string> {
        for (const auto& [key, value] : variables_of(run, job, share, 0))
          if (key == name) return value;
        const char* value = std::getenv(name.c_str());
        return value ? std::optional<std::string>(value) : std::nullopt;
      });
  return {std::move(processes), std::move(environment)};
}

JoinWatch::JoinWatch(WorkerProcesses& processes) : processes_(processes) {
  thread_ = start_thread("joining", [this] { watch(); });
}

JoinWatch::~JoinWatch() {
  done_ = true;
  thread_.join();
}

void JoinWatch::watch() {
  sigset_t interrupt;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  const timespec look{.tv_sec = 0, .tv_nsec = 20'000'000};
  while (!done_) {
    if (sigtimedwait(&interrupt, nullptr, &look) == SIGINT) {
      interrupted_ = true;
      return give_up("interrupted");
    }
    // Whoever has ended does not come any more.
    if (const auto ended = processes_.take_ended())
      return give_up(ended->never_joined() +
                     (ended->failed() ? "" : "; a program of workers calls launch()"));
  }
}

void JoinWatch::give_up(const std::string& why) {
  processes_.ask_to_end();
  stop_.fail(Error(ErrorKind::failed, why));
}

}  // namespace troupe::tools
