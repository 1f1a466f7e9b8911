// Processes started by hand, as launchers start them.
#pragma once
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <deque>
#include <map>
#include <sstream>
#include "tests/process/launcher.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/skip.h"
#include "troupe/launch/launch_environment.h"

namespace troupe::testing {

using Variables = std::vector<std::string>;

inline const std::string kToken = "0123456789abcdef0123456789abcdef",
                         kOtherToken = "another secret, just as long as it";

inline sockaddr_in loopback(int port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(static_cast<uint16_t>(port));
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return a;
}

// A port of the loopback interface, bound here as long as this lives.
struct Port {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), number = 0;
  Port() {
    sockaddr_in a = loopback(0);
    socklen_t size = sizeof a;
    REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&a), size) == 0);
    REQUIRE(getsockname(fd, reinterpret_cast<sockaddr*>(&a), &size) == 0);
    number = ntohs(a.sin_port);
  }
  ~Port() { close(fd); }
  Port(const Port&) = delete;
};

inline int free_port() { return Port().number; }

// Two free ports side by side.
inline int free_ports() {
  for (;;) {
    const Port first;
    const sockaddr_in beside = loopback(first.number + 1);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool free =
        first.number < 65535 && bind(fd, reinterpret_cast<const sockaddr*>(&beside), sizeof beside) == 0;
    close(fd);
    if (free) return first.number;
  }
}

// The path of an installed program that can say `--help`; empty: there is none that works.
inline std::string installed(const std::string& name, const std::vector<std::string>& variables = {}) {
  const char* path = getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = folder + "/" + name;
    if (access(file.c_str(), X_OK) != 0) continue;
    Process help({file, "--help"}, variables);
    if (help.exit_code() == 0) return file;
  }
  return "";
}

// The variables of one process in torchrun's dialect, and a secret in a file.
struct Site {
  Folder folder;
  int port = free_port();
  std::string token = folder.file("token", kToken);
  Variables of(int rank, int world) const {
    return {"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(world), "MASTER_ADDR=127.0.0.1",
            "MASTER_PORT=" + std::to_string(port), "TROUPE_TOKEN_FILE=" + token};
  }
};

inline Variables with(Variables variables, const std::string& more) {
  variables.push_back(more);
  return variables;
}

inline Process start(const Variables& variables) { return Process({program("probe")}, variables); }

// What a process says that ends before it joins anything.
inline void refused(const Variables& variables, int code, const std::vector<std::string>& texts) {
  Process p({program("probe")}, variables);
  const int got = p.exit_code();
  INFO(p.output << p.errors);
  CHECK(got == code);
  CHECK(Process::count(p.errors, "\n") == 1);
  CHECK(p.output.empty());
  for (const auto& text : texts) CHECK(p.errors.find(text) != std::string::npos);
}

// Waits until the driver listens.
inline void await_driver(const Site& site) {
  for (bool there = false; !there; usleep(1000)) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in a = loopback(site.port);
    there = connect(fd, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0;
    close(fd);
  }
}

inline void ends_well(Process& p) {
  const int code = p.exit_code();
  INFO(p.output << p.errors);
  CHECK(code == 0);
  CHECK(p.nothing_left());
}

}  // namespace troupe::testing
