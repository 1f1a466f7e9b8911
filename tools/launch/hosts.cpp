// Both styles of hostfiles in one grammar.
#include "tools/launch/hosts.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "core/base/error.h"
#include "core/base/regular_file.h"
#include "core/base/shown.h"

namespace troupe::tools {
namespace {

// In front of what is wrong: "-H", "hosts.txt:3".
[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw_invalid("[run] " + where + ": " + what);
}

int64_t parse_count(const std::string& where, const std::string& text) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < 1 || n > kMostProcesses)
    refuse(where,
           fmt::format("'{}' is no number of processes; expected 1 to {}", shown(text), kMostProcesses));
  return n;
}

bool is_v6(const std::string& text) {
  in6_addr address{};
  return inet_pton(AF_INET6, text.substr(0, text.find('%')).c_str(), &address) == 1;
}

// "a", "a:4", "fd00::2", "[fd00::2]:4", each perhaps behind "user@".
Host parse_host(const std::string& where, const std::string& text) {
  Host host{text};
  const size_t at = text.find('@') == std::string::npos ? 0 : text.find('@') + 1;
  if (text.compare(at, 1, "[") == 0) {
    const size_t close = text.find(']');
    if (close == std::string::npos) refuse(where, fmt::format("'{}' has no ]", shown(text)));
    const std::string rest = text.substr(close + 1);
    host.name = text.substr(0, at) + text.substr(at + 1, close - at - 1);
    if (!is_v6(host.address())) refuse(where, fmt::format("'{}' is no IPv6 address", shown(host.address())));
    if (rest.size() > 1 && rest[0] == ':')
      host.processes = parse_count(where, rest.substr(1));
    else if (!rest.empty())
      refuse(where, fmt::format("'{}' stands behind the ]; expected :N", shown(rest)));
  } else if (!is_v6(text.substr(at))) {
    const size_t colon = text.find(':');
    host.name = text.substr(0, colon);
    if (colon != std::string::npos) host.processes = parse_count(where, text.substr(colon + 1));
  }
  // It becomes a word of the remote shell's command line, so it must not look like one of its flags.
  constexpr const char* kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-%:@";
  const std::string bare = host.address();
  if (bare.empty() || host.name[0] == '-' || bare[0] == '-' || bare.find('@') != std::string::npos ||
      host.name[0] == '@' || host.name.find_first_not_of(kAllowed) != std::string::npos)
    refuse(where,
           fmt::format("'{}' is no host; expected a name or an address, as node1, user@node1, 10.0.0.2 "
                       "or [fd00::2], and perhaps :N",
                       shown(text)));
  return host;
}

struct HostLine {
  Host host;
  std::string where;
};

std::vector<Host> without_repeats(const std::vector<HostLine>& lines) {
  std::vector<Host> hosts;
  for (const auto& line : lines) {
    for (const auto& other : lines) {
      if (&other == &line) break;
      if (other.host.address() == line.host.address())
        refuse(line.where,
               fmt::format("{} is there already{}: name each host once, with the number of its "
                           "processes, as {}:4",
                           line.host.address(), other.where == line.where ? "" : " (" + other.where + ")",
                           line.host.address()));
    }
    hosts.push_back(line.host);
  }
  return hosts;
}

}  // namespace

std::vector<Host> parse_hosts(const std::string& list) {
  std::vector<HostLine> lines;
  for (size_t from = 0; from <= list.size();) {
    const size_t to = std::min(list.find(',', from), list.size());
    lines.push_back({parse_host("-H", list.substr(from, to - from)), "-H"});
    from = to + 1;
  }
  return without_repeats(lines);
}

std::vector<Host> read_hostfile(const std::string& path) {
  constexpr size_t kMostBytes = size_t{16} << 20;  // 65,536 hosts with long names
  std::istringstream file(read_regular_file(path, "[run] --hostfile: ", "a file of hosts", kMostBytes));
  std::string text;
  std::vector<HostLine> lines;
  for (int number = 1; std::getline(file, text); ++number) {
    const std::string where = fmt::format("{}:{}", path, number);
    std::istringstream words(text.substr(0, text.find('#')));
    std::string word;
    if (!(words >> word)) continue;
    Host host = parse_host(where, word);
    while (words >> word) {
      if (!word.starts_with("slots="))
        refuse(where,
               fmt::format("'{}' is not known here; expected a host, and perhaps slots=N", shown(word)));
      if (host.processes) refuse(where, "the number of processes is there twice");
      host.processes = parse_count(where, word.substr(6));
    }
    lines.push_back({std::move(host), where});
  }
  if (lines.empty()) refuse("--hostfile", path + " names no host");
  return without_repeats(lines);
}

bool is_this_host(const Host& host) {
  if (host.name.find('@') != std::string::npos) return false;  // another user's, perhaps
  char own[HOST_NAME_MAX + 1] = "";
  if (gethostname(own, sizeof own) != 0) own[0] = 0;
  const std::string whole = own;
  if (host.name == "localhost" || host.name == whole || host.name == whole.substr(0, whole.find('.')))
    return true;
  in_addr v4{};
  in6_addr v6{};
  const bool is4 = inet_pton(AF_INET, host.name.c_str(), &v4) == 1,
             is6 = inet_pton(AF_INET6, host.name.c_str(), &v6) == 1;
  if ((is4 && ntohl(v4.s_addr) >> 24 == 127) || (is6 && IN6_IS_ADDR_LOOPBACK(&v6))) return true;
  bool found = false;
  ifaddrs* list = nullptr;
  if ((!is4 && !is6) || getifaddrs(&list) != 0) return false;
  for (const ifaddrs* i = list; i; i = i->ifa_next) {
    if (!i->ifa_addr) continue;
    const void* address = i->ifa_addr;
    if (is4 && i->ifa_addr->sa_family == AF_INET)
      found |= std::memcmp(&static_cast<const sockaddr_in*>(address)->sin_addr, &v4, sizeof v4) == 0;
    if (is6 && i->ifa_addr->sa_family == AF_INET6)
      found |= std::memcmp(&static_cast<const sockaddr_in6*>(address)->sin6_addr, &v6, sizeof v6) == 0;
  }
  freeifaddrs(list);
  return found;
}

}  // namespace troupe::tools
