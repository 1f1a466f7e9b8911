// fork and exec, with a parent-death signal; the launcher has one thread, so that code after fork is free to
// allocate.
#include "tools/launch/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/base/error.h"

namespace troupe::tools {
namespace {

[[noreturn]] void fail_with(const std::string& what, int code) {
  throw_error(ErrorKind::failed, fmt::format("[run] {}: {}", what, std::strerror(code)));
}

/// The keeper's whole life. Only async-signal-safe calls.
[[noreturn]] void keep(pid_t launcher, int ready) {
  sigset_t set;
  sigfillset(&set);
  sigprocmask(SIG_SETMASK, &set, nullptr);
  setpgid(0, 0);
  prctl(PR_SET_NAME, "troupe-keeper");
  prctl(PR_SET_PDEATHSIG, SIGUSR2);
  if (getppid() != launcher) _exit(0);
  const char yes = 1;
  if (write(ready, &yes, 1) != 1) _exit(1);
  // A keeper must not hold a pipe open that somebody waits for the end of.
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 3; ++fd) dup2(nothing, fd);
  close(nothing);
  close(ready);
  sigset_t wanted;
  sigemptyset(&wanted);
  for (int signal : {SIGUSR2, SIGINT, SIGQUIT, SIGTSTP}) sigaddset(&wanted, signal);
  for (;;) {
    siginfo_t info;
    const int signal = sigwaitinfo(&wanted, &info);
    if (signal < 0) continue;
    if (signal == SIGUSR2 && getppid() == launcher) continue;  // from a stranger
    if (signal == SIGUSR2) kill(0, SIGKILL), _exit(0);
    // Signals of the terminal have no sender; the launcher's own forwarding has.
    if (info.si_code == SI_KERNEL) sigqueue(launcher, SIGUSR1, sigval{.sival_int = signal});
  }
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const auto& s : strings) result.push_back(const_cast<char*>(s.c_str()));
  result.push_back(nullptr);
  return result;
}

std::string why_not_started(const std::string& program, int code) {
  const std::string why = std::strerror(code);
  std::ifstream file(program, std::ios::binary);
  std::string first(256, '\0');
  file.read(first.data(), static_cast<std::streamsize>(first.size()));
  first.resize(static_cast<size_t>(file.gcount()));
  if (code == ENOEXEC)
    return why + (first.starts_with("\177ELF")
                      ? ": it was built for another kind of computer"
                      : ": the first line of a script names what runs it, as #!/bin/sh");
  if (code != ENOENT || first.empty()) return why;
  // The file is there, so what runs it is not.
  if (!first.starts_with("#!")) return "what loads it is missing (ldd tells): " + why;
  first = first.substr(2, first.find('\n') - 2);
  first.erase(0, first.find_first_not_of(" \t"));
  std::string interpreter = first.substr(0, first.find_first_of(" \t"));
  const bool windows = !interpreter.empty() && interpreter.back() == '\r';
  if (windows) interpreter.pop_back();
  return fmt::format("its first line asks for {}{}: {}", interpreter,
                     windows ? " and a carriage return (the line ends as on Windows)" : "", why);
}

}  // namespace

std::pair<Descriptor, Descriptor> make_pipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) fail_with("no pipe", errno);
  fcntl(fds[0], F_SETFL, O_NONBLOCK);
  return {Descriptor(fds[0]), Descriptor(fds[1])};
}

pid_t start_keeper() {
  const pid_t launcher = getpid();
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) fail_with("no pipe", errno);
  Descriptor reader(ready[0]), writer(ready[1]);
  const pid_t pid = fork();
  if (pid < 0) fail_with("no process", errno);
  if (pid == 0) {
    close(ready[0]);
    keep(launcher, ready[1]);
  }
  writer.reset();
  char byte;
  ssize_t got;
  do got = read(reader.get(), &byte, 1);
  while (got < 0 && errno == EINTR);
  if (got != 1) throw_error(ErrorKind::failed, "[run] the keeper process did not start");
  return pid;
}

pid_t start_process(const Start& start) {
  const auto arguments = pointers(start.arguments), environment = pointers(start.environment);
  const pid_t launcher = getpid();
  int status[2];
  if (pipe2(status, O_CLOEXEC) != 0) fail_with("no pipe", errno);
  Descriptor reader(status[0]), writer(status[1]);
  const pid_t pid = fork();
  if (pid < 0) fail_with("no process", errno);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(127);
    bool ok = setpgid(0, start.group) == 0;
    const int from[] = {start.in, start.out, start.err};
    for (int fd = 0; fd < 3; ++fd) ok = ok && (from[fd] == fd || dup2(from[fd], fd) == fd);
    if (start.keep >= 0) ok = ok && fcntl(start.keep, F_SETFD, 0) == 0;
    // What a shell told its background jobs to ignore would keep the workers from hearing us.
    for (int ours : {SIGPIPE, SIGXFSZ}) signal(ours, SIG_DFL);
    for (int ends : {SIGINT, SIGQUIT, SIGTERM}) signal(ends, start.stays ? SIG_IGN : SIG_DFL);
    if (start.files) {
      rlimit limit{};
      getrlimit(RLIMIT_NOFILE, &limit);
      limit.rlim_cur = start.files;
      setrlimit(RLIMIT_NOFILE, &limit);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    if (ok) execve(arguments[0], arguments.data(), environment.data());
    const int code = errno;
    const ssize_t ignored = write(status[1], &code, sizeof code);
    _exit(ignored == sizeof code ? 126 : 127);
  }
  writer.reset();
  int code = 0;
  ssize_t got;
  do got = read(reader.get(), &code, sizeof code);
  while (got < 0 && errno == EINTR);
  if (got == sizeof code) {
    waitpid(pid, nullptr, 0);
    throw_error(ErrorKind::failed, fmt::format("[run] cannot start {}: {}", start.arguments[0],
                                               why_not_started(start.arguments[0], code)));
  }
  return pid;
}

std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& variables,
                                          const std::vector<std::string>& without) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text(*entry);
    const auto name = text.substr(0, text.find('='));
    const bool replaced =
        std::any_of(variables.begin(), variables.end(), [&](const auto& v) { return v.first == name; });
    if (!replaced && std::find(without.begin(), without.end(), name) == without.end())
      result.emplace_back(text);
  }
  for (const auto& [name, value] : variables) result.push_back(name + "=" + value);
  return result;
}

}  // namespace troupe::tools
