// Raw clients, log capture, child processes for the socket tests.
#include "tests/net/socket_support.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <stdexcept>

namespace troupe::internal::net::test {
namespace {

std::mutex log_mutex;
std::condition_variable log_changed;
std::vector<std::string> log_lines;

void keep_line(log::Level, const std::string& text) {
  std::lock_guard lock(log_mutex);
  log_lines.push_back(text);
  log_changed.notify_all();
}

size_t lines_with(const std::string& part) {
  return static_cast<size_t>(std::count_if(log_lines.begin(), log_lines.end(), [&](const std::string& line) {
    return line.find(part) != std::string::npos;
  }));
}

}  // namespace

std::string fresh_address() {
  static std::atomic<int> count{0};
  return "unix:@troupe-socket-test-" + std::to_string(getpid()) + "-" + std::to_string(count++);
}

RawClient::RawClient(const std::string& address) {
  std::string why;
  const auto to = resolve_numeric(parse_address(address)).found.at(0);
  fd_ = Descriptor(::socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(fd_.get(), to.get(), to.size) == 0);
}

bool RawClient::send(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return true;
}

std::vector<std::byte> RawClient::receive(size_t n) {
  std::vector<std::byte> out(n);
  size_t have = 0;
  while (have < n) {
    const ssize_t got = ::recv(fd_.get(), out.data() + have, n - have, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    have += static_cast<size_t>(got);
  }
  out.resize(have);
  return out;
}

bool RawClient::closed_by_peer() {
  while (!receive(1).empty()) {
  }
  return true;
}

Handshake RawClient::shake(const std::string& token, uint32_t version, const LinkWords& link) {
  Handshake h(Handshake::Role::connector, token, {9, "raw9"}, random_nonce(), TimePoint::max(), 0, version);
  h.set_link(link);
  send(h.take_output());
  while (h.state() == Handshake::State::waiting) {
    const auto got = receive(h.wanted());
    if (got.empty()) break;
    h.receive(got);
    send(h.take_output());
  }
  return h;
}

LogCapture::LogCapture() {
  std::lock_guard lock(log_mutex);
  log_lines.clear();
  log::set_sink(keep_line);
}
LogCapture::~LogCapture() { log::set_sink(nullptr); }

size_t LogCapture::count(const std::string& part) const {
  std::lock_guard lock(log_mutex);
  return lines_with(part);
}

void LogCapture::wait_for(const std::string& part) const {
  std::unique_lock lock(log_mutex);
  REQUIRE(log_changed.wait_for(lock, kForever, [&] { return lines_with(part) > 0; }));
}

Child::Child(const std::string& test_case, const std::string& address) {
  std::vector<std::string> environment{"TROUPE_TEST_ADDRESS=" + address};
  for (char** e = environ; *e; ++e) environment.push_back(*e);
  std::vector<char*> env;
  for (auto& e : environment) env.push_back(e.data());
  env.push_back(nullptr);
  std::string program = "/proc/self/exe", name = test_case, quiet = "--out=/dev/null";
  char* argv[] = {program.data(), name.data(), quiet.data(), nullptr};
  REQUIRE(posix_spawn(&pid_, program.c_str(), nullptr, nullptr, argv, env.data()) == 0);
}

Child::~Child() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Child::signal(int number) {  // by any thread, which REQUIRE() is not for
  if (::kill(pid_, number) != 0) throw std::runtime_error("cannot send signal " + std::to_string(number));
}

}  // namespace troupe::internal::net::test
