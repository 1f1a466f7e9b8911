// Runs the built `troupe` command and watches every process that comes of it.
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

/// `troupe run ARGUMENTS`, started by the constructor. A pipe that all its descendants inherit tells when the
/// last of them is gone: only then does its reading end see the end.
class Launcher {
 public:
  explicit Launcher(std::vector<std::string> arguments, std::vector<std::string> environment = {}) {
    int out[2], err[2], life[2];
    REQUIRE(pipe2(out, O_CLOEXEC) == 0);
    REQUIRE(pipe2(err, O_CLOEXEC) == 0);
    REQUIRE(pipe2(life, O_CLOEXEC) == 0);
    out_ = out[0], err_ = err[0], life_ = life[0];
    arguments.insert(arguments.begin(), {TROUPE_BIN, "run"});
    std::vector<char*> argv, env;
    for (auto& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      const int nothing = open("/dev/null", O_RDONLY);
      dup2(nothing, 0);
      dup2(out[1], 1);
      dup2(err[1], 2);
      fcntl(life[1], F_SETFD, 0);
      for (auto& variable : environment) putenv(variable.data());
      execv(argv[0], argv.data());
      _exit(99);
    }
    close(out[1]), close(err[1]), close(life[1]);
  }
  ~Launcher() {
    if (!waited_) kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
    for (int fd : {out_, err_, life_}) close(fd);
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  void signal(int number) { REQUIRE(kill(pid_, number) == 0); }

  /// Reads until standard output holds `text` `times` times; fails if it ends before.
  void await(const std::string& text, size_t times = 1) {
    while (count(output, text) < times) {
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
