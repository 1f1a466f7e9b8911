#include "troupe/watch/doors.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <tuple>

#include "core/base/ascii.h"

namespace troupe::internal::watch {
namespace {

constexpr char kBegin[] = "troupe-watch-";
constexpr size_t kLongestJob = 48;  // an address has 107 bytes

// The number at the head of `text`, which goes on behind it and a '-'.
template <class T>
bool take_number(std::string_view& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const auto length = static_cast<size_t>(end - text.data());
  if (error != std::errc() || length == text.size() || text[length] != '-') return false;
  text.remove_prefix(length + 1);
  return true;
}

socklen_t address_of(const Door& door, sockaddr_un& at) {
  const std::string name = door.name();
  at.sun_family = AF_UNIX;
  std::memcpy(at.sun_path + 1, name.data(), std::min(name.size(), sizeof at.sun_path - 1));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

}  // namespace

std::string Door::name() const {
  std::string plain = job.substr(0, kLongestJob);
  for (char& c : plain)
    if (!is_word(c) && c != '.' && c != '-') c = '_';
  return kBegin + std::to_string(user) + "-" + std::to_string(pid) + "-" + std::to_string(rank) + "-" + plain;
}

std::optional<Door> Door::from(const std::string& name) {
  std::string_view rest = name;
  if (!rest.starts_with(kBegin)) return {};
  rest.remove_prefix(sizeof kBegin - 1);
  Door out;
  if (!take_number(rest, out.user) || !take_number(rest, out.pid) || !take_number(rest, out.rank)) return {};
  out.job = rest;
  return out;
}

std::vector<Door> doors_here() {
  std::vector<Door> out;
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    const size_t at = line.rfind(" @");
    if (at == std::string::npos) continue;
    const auto door = Door::from(line.substr(at + 2));
    if (!door || (door->user != geteuid() && geteuid() != 0)) continue;
    const bool again = std::ranges::any_of(out, [&](const Door& d) { return d.name() == door->name(); });
    if (!again) out.push_back(*door);  // each connection has a line as well
  }
  std::ranges::sort(out, {}, [](const Door& d) { return std::tuple(d.user, d.job, d.rank, d.pid); });
  return out;
}

char process_state(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t end = line.rfind(") ");  // of the program's name
  return end == std::string::npos || end + 2 >= line.size() ? '\0' : line[end + 2];
}

Descriptor listen_at_door(const Door& door) {
  Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fd;
  sockaddr_un at{};
  const socklen_t size = address_of(door, at);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), size) == 0 && listen(fd.get(), 64) == 0)
    return fd;
  return {};
}

Descriptor knock(const Door& door) {
  Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fd;
  sockaddr_un at{};
  const socklen_t size = address_of(door, at);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&at), size) == 0) return fd;
  return {};
}

std::optional<uid_t> user_of(int connection) {
  ucred who{};
  socklen_t size = sizeof who;
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return {};
  return who.uid;
}

}  // namespace troupe::internal::watch
