// A real process under test: its output, its end, and whether anything that came of it is left.
#pragma once
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <string>
#include <vector>

namespace troupe::testing {

/// `command`, started by the constructor, with `environment` ("NAME=value") and no variable of any launcher
/// besides. A pipe that all its descendants inherit tells when the last of them is gone: only then does its
/// reading end see the end.
class Process {
 public:
  explicit Process(std::vector<std::string> command, std::vector<std::string> environment = {}) {
    int out[2], err[2], life[2];
    REQUIRE(pipe2(out, O_CLOEXEC) == 0);
    REQUIRE(pipe2(err, O_CLOEXEC) == 0);
    REQUIRE(pipe2(life, O_CLOEXEC) == 0);
    out_ = out[0], err_ = err[0], life_ = life[0];
    std::vector<char*> argv;
    for (auto& a : command) argv.push_back(a.data());
    argv.push_back(nullptr);
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      const int nothing = open("/dev/null", O_RDONLY);
      dup2(nothing, 0);
      dup2(out[1], 1);
      dup2(err[1], 2);
      fcntl(life[1], F_SETFD, 0);
      for (const char* name : {"TROUPE_RANK",
                               "TROUPE_WORLD_SIZE",
                               "TROUPE_ADDRESS",
                               "TROUPE_TOKEN",
                               "TROUPE_TOKEN_FILE",
                               "TROUPE_BIND",
                               "TROUPE_WORKERS",
                               "TROUPE_JOIN_TIMEOUT",
                               "TROUPE_LOG",
                               "RANK",
                               "WORLD_SIZE",
                               "MASTER_ADDR",
                               "MASTER_PORT",
                               "TORCHELASTIC_USE_AGENT_STORE",
                               "TORCHELASTIC_RUN_ID",
                               "TORCHELASTIC_RESTART_COUNT",
                               "SLURM_RESTART_COUNT",
                               "JOB_COMPLETION_INDEX",
                               "SLURM_JOB_ID",
                               "SLURM_NTASKS",
                               "SLURM_PROCID",
                               "SLURM_STEP_ID",
                               "SLURM_STEP_NODELIST",
                               "SLURM_STEP_NUM_NODES",
                               "SLURM_STEP_NUM_TASKS",
                               "OMPI_COMM_WORLD_RANK",
                               "OMPI_COMM_WORLD_SIZE",
                               "OMPI_COMM_WORLD_LOCAL_SIZE",
                               "OMPI_MCA_ess_base_jobid",
                               "OMPI_MCA_orte_hnp_uri",
                               "PMIX_NAMESPACE",
                               "PMI_RANK",
                               "PMI_SIZE",
                               "MPI_LOCALNRANKS",
                               "LOCAL_RANK",
                               "LOCAL_WORLD_SIZE",
                               "TROUPE_JOB",
                               "TROUPE_ELASTIC",
                               "TROUPE_TLS",
                               "TROUPE_NUM_THREADS"})
        unsetenv(name);
      for (auto& variable : environment) putenv(variable.data());
      execv(argv[0], argv.data());
      _exit(99);
    }
    close(out[1]), close(err[1]), close(life[1]);
  }
  ~Process() {
    if (!waited_) kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
    for (int fd : {out_, err_, life_}) close(fd);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) { REQUIRE(kill(pid_, number) == 0); }

  /// Reads until standard output holds `text` `times` times; fails if it ends before.
  void await(const std::string& text, size_t times = 1) {
    while (count(output, text) < times) {
      INFO("output so far: " << output << errors);
      REQUIRE(read_some());
    }
  }
  /// The same for standard error.
  void await_error(const std::string& text) {
    while (errors.find(text) == std::string::npos) {
      INFO("output so far: " << output << errors);
      REQUIRE(read_some());
    }
  }
  /// Waits for the end; exit code, or 128 + n.
  int exit_code() {
    while (read_some()) {
    }
    int status = 0;
    REQUIRE(waitpid(pid_, &status, 0) == pid_);
    waited_ = true;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  /// After exit_code(): is no descendant there any more, now?
  bool nothing_left() {
    pollfd life{life_, POLLIN, 0};
    return poll(&life, 1, 0) == 1;
  }
  /// Waits until no descendant is there any more.
  void await_nothing_left() {
    char byte;
    REQUIRE(read(life_, &byte, 1) == 0);
  }
  /// Waits until nothing is left of one of two; which one.
  static Process& first_to_end(Process& a, Process& b) {
    pollfd both[2] = {{a.life_, POLLIN, 0}, {b.life_, POLLIN, 0}};
    while (poll(both, 2, -1) < 0) REQUIRE(errno == EINTR);
    return both[0].revents ? a : b;
  }

  /// The rest of the first line of the output that starts with `start`; fails if there is none.
  std::string line(const std::string& start) const {
    const auto all = lines(start);
    INFO(start << " in: " << output << errors);
    REQUIRE_FALSE(all.empty());
    return all.front().substr(start.size());
  }
  /// All lines of the output that start with `start`.
  std::vector<std::string> lines(const std::string& start) const {
    std::vector<std::string> found;
    for (size_t at = 0; at < output.size();) {
      const size_t end = std::min(output.find('\n', at), output.size());
      if (output.compare(at, start.size(), start) == 0) found.push_back(output.substr(at, end - at));
      at = end + 1;
    }
    return found;
  }

  std::string output, errors;

  static size_t count(const std::string& text, const std::string& part) {
    size_t n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
    return n;
  }

 private:
  bool read_some() {
    pollfd both[2] = {{out_open_ ? out_ : -1, POLLIN, 0}, {err_open_ ? err_ : -1, POLLIN, 0}};
    if (!out_open_ && !err_open_) return false;
    if (poll(both, 2, -1) < 0) return errno == EINTR;
    if (both[0].revents) out_open_ = take(out_, output);
    if (both[1].revents) err_open_ = take(err_, errors);
    return out_open_ || err_open_;
  }
  static bool take(int fd, std::string& into) {
    char bytes[4096];
    const ssize_t got = read(fd, bytes, sizeof bytes);
    if (got > 0) into.append(bytes, size_t(got));
    return got > 0;
  }
  pid_t pid_ = 0;
  int out_ = -1, err_ = -1, life_ = -1;
  bool out_open_ = true, err_open_ = true, waited_ = false;
};

}  // namespace troupe::testing
